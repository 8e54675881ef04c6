/* paths.c - where a user's things are, unless told otherwise. */
#include "base/system/paths.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USER_SIZE 16384 /* of one entry in the list of users */

const char *reef_environment_get(char *const *environment, const char *name)
{
	size_t size = strlen(name);

	for (environment = environment ? environment : environ;
	     environment && *environment; environment++)
		if (strncmp(*environment, name, size) == 0 &&
		    (*environment)[size] == '=')
			return *environment + size + 1;
	return NULL;
}

static const char *absolute_variable(char *const *environment, const char *name)
{
	const char *value = reef_environment_get(environment, name);

	return value && value[0] == '/' ? value : NULL;
}

/* Put two texts together.  -ENOMEM. */
static int join_texts(const char *front, const char *back, char **out)
{
	char *path;

	if (asprintf(&path, "%s%s", front, back) < 0)
		return -ENOMEM;
	*out = path;
	return 0;
}

static int join_to_home(char *const *environment, const char *rest, char **out)
{
	const char *home = absolute_variable(environment, "HOME");
	struct passwd user, *found = NULL;
	char *bytes;
	int rc;

	if (home)
		return join_texts(home, rest, out);
	bytes = malloc(USER_SIZE);
	if (!bytes)
		return -ENOMEM;
	rc = getpwuid_r(geteuid(), &user, bytes, USER_SIZE, &found);
	if (rc || !found || user.pw_dir[0] != '/')
		rc = -ENOENT;
	else
		rc = join_texts(user.pw_dir, rest, out);
	free(bytes);
	return rc;
}

int reef_path_config(char *const *environment, char **out)
{
	const char *base = absolute_variable(environment, "XDG_CONFIG_HOME");

	if (base)
		return join_texts(base, "/reef/reef.conf", out);
	return join_to_home(environment, "/.config/reef/reef.conf", out);
}

int reef_path_data(char *const *environment, char **out)
{
	const char *base = absolute_variable(environment, "XDG_STATE_HOME");

	if (base)
		return join_texts(base, "/reef", out);
	return join_to_home(environment, "/.local/state/reef", out);
}

int reef_path_runtime(char *const *environment, char **out)
{
	const char *base = absolute_variable(environment, "XDG_RUNTIME_DIR");
	char own[48];

	if (base)
		return join_texts(base, "/reef", out);
	snprintf(own, sizeof(own), "/tmp/reef-%lu", (unsigned long)geteuid());
	return join_texts(own, "", out);
}

int reef_path_expand(char *const *environment, const char *path, char **out)
{
	if (path[0] == '~' && (path[1] == '/' || path[1] == '\0'))
		return join_to_home(environment, path + 1, out);
	return join_texts(path, "", out);
}
