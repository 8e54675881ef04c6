/* read.c - the lines of a file, the variables of an environment, the
 * flags of a command line. */
#include "base/config/internal.h"
#include "base/log.h"
#include "base/system/paths.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_SIZE 64 /* longer names are no settings */

/* --- names that were meant --- */

/* Three rows of the usual table are enough: a swap looks two back. */
uint32_t reef_config_distance(const char *a, const char *b)
{
	size_t m = strlen(a), n = strlen(b);
	uint32_t rows[3][NAME_SIZE + 1], cost, best;

	if (m > NAME_SIZE || n > NAME_SIZE)
		return UINT32_MAX;
	for (size_t k = 0; k <= n; k++)
		rows[0][k] = (uint32_t)k;
	for (size_t i = 1; i <= m; i++) {
		uint32_t *row = rows[i % 3], *up = rows[(i + 2) % 3];
		const uint32_t *up2 = rows[(i + 1) % 3];

		row[0] = (uint32_t)i;
		for (size_t k = 1; k <= n; k++) {
			cost = a[i - 1] != b[k - 1];
			best = up[k - 1] + cost;
			best = up[k] + 1 < best ? up[k] + 1 : best;
			best = row[k - 1] + 1 < best ? row[k - 1] + 1 : best;
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] &&
			    a[i - 2] == b[k - 1] && up2[k - 2] + 1 < best)
				best = up2[k - 2] + 1;
			row[k] = best;
		}
	}
	return rows[m % 3][n];
}

bool reef_config_is_near(const char *a, const char *b)
{
	return reef_config_distance(a, b) <= 1 + strlen(b) / 5;
}

/* The nearest name among settings with these uses and flags; NULL: none is
 * near. Uses 0: any setting. */
static const char *find_near_name(const struct reef_config *config,
				  const char *name, uint32_t uses,
				  const struct reef_config_flag *flags)
{
	const struct reef_config_setting *setting = config->settings;
	uint32_t nearest = UINT32_MAX, distance;
	const char *found = NULL;

	for (uint32_t i = 0; i < config->count; i++, setting++) {
		if (uses && !(setting->uses & uses))
			continue;
		distance = reef_config_distance(name, setting->name);
		if (distance < nearest &&
		    reef_config_is_near(name, setting->name)) {
			nearest = distance;
			found = setting->name;
		}
	}
	for (; flags && flags->name; flags++) {
		distance = reef_config_distance(name, flags->name);
		if (distance < nearest &&
		    reef_config_is_near(name, flags->name)) {
			nearest = distance;
			found = flags->name;
		}
	}
	return found;
}

/* --- a file --- */

static const char *skip_blanks(const char *from, const char *end)
{
	while (from < end && (*from == ' ' || *from == '\t' || *from == '\r'))
		from++;
	return from;
}

static const char *trim_blanks(const char *from, const char *end)
{
	while (end > from &&
	       (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
		end--;
	return end;
}

/* The place where a comment begins, or the end. */
static const char *find_comment(const char *from, const char *end)
{
	for (const char *at = from; at < end; at++)
		if (*at == '#' &&
		    (at == from || at[-1] == ' ' || at[-1] == '\t'))
			return at;
	return end;
}

static int refuse_unknown_key(struct reef_config *config, const char *where,
			      const char *name)
{
	const char *near = find_near_name(config, name, 0, NULL);

	if (near)
		return reef_config_fail(config, -EINVAL,
					"%s: there is no setting \"%s\"; did "
					"you mean \"%s\"?",
					where, name, near);
	return reef_config_fail(config, -EINVAL,
				"%s: there is no setting \"%s\"", where, name);
}

static int set_pair(struct reef_config *config, const char *where,
		    uint32_t line, const char *name, const char *text)
{
	int64_t setting = reef_config_find(config, name, strlen(name));
	uint32_t *first;

	if (setting < 0)
		return refuse_unknown_key(config, where, name);
	first = &config->values[setting].line;
	if (*first)
		return reef_config_fail(
			config, -EINVAL,
			"%s: %s is there twice, first in line %u", where, name,
			*first);
	*first = line;
	return reef_config_set(config, (uint32_t)setting, text,
			       REEF_CONFIG_FILE, where);
}

static int read_line(struct reef_config *config, const char *where,
		     uint32_t line, const char *from, const char *end)
{
	const char *equals, *name_end;
	char name[NAME_SIZE + 1];
	char *text;
	int rc;

	if (memchr(from, '\0', (size_t)(end - from)))
		return reef_config_fail(config, -EINVAL,
					"%s: not text: it has a zero in it",
					where);
	from = skip_blanks(from, end);
	end = trim_blanks(from, find_comment(from, end));
	if (from == end)
		return 0;
	equals = memchr(from, '=', (size_t)(end - from));
	if (!equals || equals == from)
		return reef_config_fail(config, -EINVAL,
					"%s: not of the form key = value",
					where);
	name_end = trim_blanks(from, equals);
	snprintf(name, sizeof(name), "%.*s", (int)(name_end - from), from);
	from = skip_blanks(equals + 1, end);
	/* In "key =# text" no blank is before the comment, and yet it is
	 * one. */
	if (from < end && *from == '#')
		from = end;
	text = strndup(from, (size_t)(end - from));
	if (!text)
		return -ENOMEM;
	rc = set_pair(config, where, line, name, text);
	free(text);
	return rc;
}

int reef_config_read(struct reef_config *config, const char *name,
		     const char *text, size_t size)
{
	const char *end = text + size, *newline;
	uint32_t line = 0;
	char *where;
	int rc = 0;

	for (uint32_t i = 0; i < config->count; i++)
		config->values[i].line = 0;
	while (text < end && !rc) {
		newline = memchr(text, '\n', (size_t)(end - text));
		if (!newline)
			newline = end;
		if (asprintf(&where, "%s:%u", name, ++line) < 0)
			return -ENOMEM;
		rc = read_line(config, where, line, text, newline);
		free(where);
		text = newline < end ? newline + 1 : end;
	}
	return rc;
}

/* --- the environment --- */

/* A variable that looks like one of ours and is none gets a warning only:
 * others may use the prefix. */
static void warn_of_near(const struct reef_config *config, const char *entry)
{
	size_t size = strcspn(entry, "=");
	char name[NAME_SIZE + 1];

	if (strncmp(entry, "REEF_", 5) != 0 || size > NAME_SIZE)
		return;
	snprintf(name, sizeof(name), "%.*s", (int)size, entry);
	for (uint32_t i = 0; i < config->count; i++)
		if (strcmp(name, config->settings[i].variable) == 0)
			return;
	for (uint32_t i = 0; i < config->count; i++)
		if (reef_config_distance(name, config->settings[i].variable) ==
		    1) {
			reef_log(REEF_LOG_WARNING, "config",
				 "%s is not a setting; did you mean %s?", name,
				 config->settings[i].variable);
			return;
		}
}

int reef_config_read_environment(struct reef_config *config, const char **file)
{
	char *const *entry;
	const char *text;
	int rc;

	for (uint32_t i = 0; i < config->count; i++) {
		text = reef_environment_get(config->environment,
					    config->settings[i].variable);
		if (!text)
			continue;
		rc = reef_config_set(config, i, text, REEF_CONFIG_ENVIRONMENT,
				     config->settings[i].variable);
		if (rc)
			return rc;
	}
	text = reef_environment_get(config->environment, "REEF_CONFIG");
	if (text && *text)
		*file = text;
	entry = config->environment ? config->environment : environ;
	for (; entry && *entry; entry++)
		warn_of_near(config, *entry);
	return 0;
}

/* --- flags --- */

/* The arguments, and which is read now. */
struct arguments {
	const struct reef_config_input *input;
	int at;
	char name[NAME_SIZE + 1]; /* of the flag, without hyphens */
	const char *value;	  /* behind '='; NULL: there was none */
};

static int need_value(struct reef_config *config, struct arguments *arguments,
		      const char **out)
{
	const struct reef_config_input *input = arguments->input;

	if (arguments->value) {
		*out = arguments->value;
		return 0;
	}
	if (arguments->at + 1 >= input->argc)
		return reef_config_fail(config, -EINVAL, "--%s needs a value",
					arguments->name);
	*out = input->argv[++arguments->at];
	return 0;
}

static int forbid_value(struct reef_config *config,
			const struct arguments *arguments)
{
	if (!arguments->value)
		return 0;
	return reef_config_fail(config, -EINVAL, "--%s takes no value",
				arguments->name);
}

/* Read a flag that every command has. 1: it was one.  0: it was not. */
static int read_builtin_flag(struct reef_config *config,
			     struct arguments *arguments, const char **file)
{
	bool *wish = NULL;
	int rc;

	if (strcmp(arguments->name, "config") == 0) {
		rc = need_value(config, arguments, file);
		return rc ? rc : 1;
	}
	if (strcmp(arguments->name, "check-config") == 0)
		wish = &config->wants_check;
	if (strcmp(arguments->name, "help") == 0)
		wish = &config->wants_help;
	if (!wish)
		return 0;
	*wish = true;
	rc = forbid_value(config, arguments);
	return rc ? rc : 1;
}

/* Read a flag of the command's own. 1: it was one.  0: it was not. */
static int read_command_flag(struct reef_config *config,
			     struct arguments *arguments)
{
	const struct reef_config_flag *flag = arguments->input->flags;
	const char *text = NULL;
	int rc;

	while (flag && flag->name && strcmp(flag->name, arguments->name) != 0)
		flag++;
	if (!flag || !flag->name)
		return 0;
	rc = flag->value_name ? need_value(config, arguments, &text)
			      : forbid_value(config, arguments);
	if (rc)
		return rc;
	if (flag->given)
		*flag->given = true;
	if (flag->value)
		*flag->value = text;
	return 1;
}

static int read_setting_flag(struct reef_config *config,
			     struct arguments *arguments)
{
	const struct reef_config_input *input = arguments->input;
	int64_t setting = reef_config_find(config, arguments->name,
					   strlen(arguments->name));
	char where[NAME_SIZE + 3];
	const char *text = NULL, *near;
	int rc;

	if (setting < 0 || !(config->settings[setting].uses & input->uses)) {
		near = find_near_name(config, arguments->name,
				      input->uses ? input->uses : UINT32_MAX,
				      input->flags);
		return reef_config_fail(
			config, -EINVAL, "there is no flag --%s%s%s%s",
			arguments->name, near ? "; did you mean --" : "",
			near ? near : "", near ? "?" : "");
	}
	/* `--switch` alone means yes, and takes no other argument. */
	if (config->settings[setting].type == REEF_CONFIG_SWITCH)
		text = arguments->value ? arguments->value : "yes";
	else if ((rc = need_value(config, arguments, &text)))
		return rc;
	snprintf(where, sizeof(where), "--%s", arguments->name);
	return reef_config_set(config, (uint32_t)setting, text,
			       REEF_CONFIG_FLAG, where);
}

static int read_flag(struct reef_config *config, struct arguments *arguments,
		     const char **file)
{
	const char *text = arguments->input->argv[arguments->at];
	size_t size;
	int rc;

	if (strcmp(text, "-h") == 0)
		text = "--help";
	if (text[1] != '-')
		return reef_config_fail(config, -EINVAL,
					"there is no flag %.64s", text);
	text += 2;
	size = strcspn(text, "=");
	snprintf(arguments->name, sizeof(arguments->name), "%.*s", (int)size,
		 text);
	arguments->value = text[size] == '=' ? text + size + 1 : NULL;
	rc = read_builtin_flag(config, arguments, file);
	if (rc == 0)
		rc = read_command_flag(config, arguments);
	if (rc == 0)
		rc = read_setting_flag(config, arguments);
	return rc < 0 ? rc : 0;
}

int reef_config_read_flags(struct reef_config *config,
			   const struct reef_config_input *input,
			   const char **file)
{
	struct arguments arguments = {.input = input, .at = 1};
	bool ended = false;
	const char *text;
	int rc = 0;

	if (input->argc <= 1)
		return 0;
	config->rest = calloc((size_t)input->argc, sizeof(*config->rest));
	if (!config->rest)
		return -ENOMEM;
	for (; arguments.at < input->argc && !rc; arguments.at++) {
		text = input->argv[arguments.at];
		if (ended || text[0] != '-' || text[1] == '\0')
			config->rest[config->rest_count++] = text;
		else if (strcmp(text, "--") == 0)
			ended = true;
		else
			rc = read_flag(config, &arguments, file);
	}
	return rc;
}
