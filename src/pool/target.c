/* target.c - see target.h. */
#include "pool/target.h"

#include "base/system/paths.h"
#include "base/system/private.h"
#include "pool/keys.h"
#include "pool/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The path of a file in the runtime directory; the caller frees it. */
static int runtime_path(const char *run, const char *file, char **out)
{
	const char *given = run ? run : reef_environment_get(NULL, "REEF_RUN");
	char *directory = NULL;
	int rc = 0;

	if (given && *given)
		directory = strdup(given);
	else
		rc = reef_path_runtime(NULL, &directory);
	if (rc)
		return rc;
	if (!directory || asprintf(out, "%s/%s", directory, file) < 0)
		rc = -ENOMEM;
	free(directory);
	return rc;
}

static int read_local_broker(const char *run, char *broker)
{
	ssize_t size;
	char *path;
	int rc;

	rc = runtime_path(run, REEF_TARGET_BROKER, &path);
	if (rc)
		return rc;
	size = reef_private_read(path, broker, REEF_TARGET_MAX - 1);
	free(path);
	if (size < 0)
		return (int)size;
	broker[size] = '\0';
	broker[strcspn(broker, "\r\n")] = '\0';
	return *broker ? 0 : -ENOENT;
}

static int append_text(char *text, const char *prefix, const char *from,
		       size_t length)
{
	size_t used = strlen(text);
	int rc = snprintf(text + used, REEF_TARGET_MAX - used, "%s%.*s", prefix,
			  (int)length, from);

	return rc < 0 || (size_t)rc >= REEF_TARGET_MAX - used ? -EINVAL : 0;
}

static int parse_hosts(const char *hosts, char *broker)
{
	char port[16];
	size_t length;
	const char *colon;
	int rc = 0;

	snprintf(port, sizeof(port), ":%d", REEF_PORT);
	*broker = '\0';
	for (; !rc && *hosts; hosts += length + (hosts[length] == ',')) {
		length = strcspn(hosts, ",");
		if (!length || memchr(hosts, ' ', length))
			return -EINVAL;
		rc = append_text(broker, *broker ? ",tcp:" : "tcp:", hosts,
				 length);
		/* An IPv6 address is in brackets; a port comes after them. */
		colon = memrchr(hosts, ':', length);
		if (!rc && (!colon || hosts[length - 1] == ']'))
			rc = append_text(broker, "", port, strlen(port));
	}
	return rc ? rc : *broker ? 0 : -EINVAL;
}

int reef_target_broker(const char *target, const char *run,
		       char broker[REEF_TARGET_MAX])
{
	if (!strcmp(target, "local"))
		return read_local_broker(run, broker);
	if (!strncmp(target, "reef://", 7))
		return parse_hosts(target + 7, broker);
	/* HOST:PORT means reef://HOST:PORT. */
	if (strchr(target, ':') && strncmp(target, "embedded:", 9) != 0)
		return parse_hosts(target, broker);
	return -EINVAL;
}

int reef_target_credential(const char *path, const char *run,
			   struct reef_credential *out)
{
	char *owner = NULL;
	int rc = 0;

	if (!path)
		rc = runtime_path(run, REEF_TARGET_OWNER, &owner);
	if (!rc)
		rc = reef_credential_load(path ? path : owner, out);
	free(owner);
	return rc;
}
