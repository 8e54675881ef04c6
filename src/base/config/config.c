/* config.c - values: what they must be, and which one counts. */
#include "base/config/config.h"

#include "base/config/internal.h"
#include "base/log.h"
#include "base/system/paths.h"
#include "base/units.h"

#include <errno.h>
#include <inttypes.h>
#include <reef/error.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FILE_SIZE_MAX (1u << 20)

static void clear_value(struct reef_config_value *value)
{
	for (uint32_t i = 0; i < value->count; i++)
		free(value->items[i]);
	free(value->items);
	free(value->text);
	free(value->where);
	*value = (struct reef_config_value){0};
}

int reef_config_create(const struct reef_config_setting *settings,
		       uint32_t count, struct reef_config **out)
{
	struct reef_config *config = calloc(1, sizeof(*config));
	int rc = 0;

	if (!config)
		return -ENOMEM;
	config->settings = settings;
	config->count = count;
	config->values = calloc(count + 1, sizeof(*config->values));
	if (!config->values)
		rc = -ENOMEM;
	for (uint32_t i = 0; i < count && !rc; i++)
		if (settings[i].initial)
			rc = reef_config_set(config, i, settings[i].initial,
					     REEF_CONFIG_DEFAULT, NULL);
	/* A default that its own setting refuses is a bug in the table. */
	reef_assert(rc == 0 || rc == -ENOMEM);
	if (rc) {
		reef_config_destroy(config);
		return rc;
	}
	*out = config;
	return 0;
}

void reef_config_destroy(struct reef_config *config)
{
	if (!config)
		return;
	for (uint32_t i = 0; config->values && i < config->count; i++)
		clear_value(&config->values[i]);
	free(config->values);
	free(config->file);
	free(config->rest);
	free(config);
}

int reef_config_fail(struct reef_config *config, int rc, const char *format,
		     ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(config->error, sizeof(config->error), format, arguments);
	va_end(arguments);
	return rc;
}

const char *reef_config_error(const struct reef_config *config)
{
	return config->error;
}

int reef_config_refuse(struct reef_config *config, uint32_t setting,
		       const char *format, ...)
{
	const struct reef_config_value *value = &config->values[setting];
	char what[REEF_CONFIG_ERROR_SIZE / 2];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	return reef_config_fail(config, -EINVAL, "%s: %s %s",
				value->where ? value->where : "default",
				config->settings[setting].name, what);
}

int64_t reef_config_find(const struct reef_config *config, const char *name,
			 size_t size)
{
	for (uint32_t i = 0; i < config->count; i++)
		if (strlen(config->settings[i].name) == size &&
		    memcmp(config->settings[i].name, name, size) == 0)
			return i;
	return -1;
}

/* --- what a text means --- */

static int parse_number(const char *text, uint64_t *out)
{
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	errno = 0;
	*out = strtoull(text, &end, 10);
	return *end ? -EINVAL : -errno;
}

static int parse_word(const char *text, const char *const *words, uint64_t *out)
{
	for (uint64_t i = 0; words[i]; i++)
		if (strcmp(words[i], text) == 0) {
			*out = i;
			return 0;
		}
	return -EINVAL;
}

static int parse_switch(const char *text, uint64_t *out)
{
	/* The words at odd places mean yes. */
	static const char *const words[] = {"no",   "yes", "off", "on", "false",
					    "true", "0",   "1",	  NULL};
	int rc = parse_word(text, words, out);

	if (rc == 0)
		*out &= 1;
	return rc;
}

static int parse_value(const struct reef_config_setting *setting,
		       const char *text, uint64_t *out)
{
	switch (setting->type) {
	case REEF_CONFIG_SIZE:
		return reef_size_parse(text, out);
	case REEF_CONFIG_DURATION:
		return reef_duration_parse(text, out);
	case REEF_CONFIG_NUMBER:
		return parse_number(text, out);
	case REEF_CONFIG_SWITCH:
		return parse_switch(text, out);
	case REEF_CONFIG_CHOICE:
		return parse_word(text, setting->choices, out);
	default:
		return 0;
	}
}

static bool is_ranged(const struct reef_config_setting *setting)
{
	return setting->type == REEF_CONFIG_SIZE ||
	       setting->type == REEF_CONFIG_DURATION ||
	       setting->type == REEF_CONFIG_NUMBER;
}

static char *format_number(const struct reef_config_setting *setting,
			   uint64_t number, char text[REEF_UNITS_TEXT_SIZE])
{
	if (setting->type == REEF_CONFIG_SIZE)
		return reef_size_format(number, text);
	if (setting->type == REEF_CONFIG_DURATION)
		return reef_duration_format(number, text);
	snprintf(text, REEF_UNITS_TEXT_SIZE, "%" PRIu64, number);
	return text;
}

/* Describe how a value of this setting is to be written. */
static void describe_form(const struct reef_config_setting *setting, char *text,
			  size_t size)
{
	static const char *const shapes[] = {
		[REEF_CONFIG_SIZE] = "is not a size, like 512M or 8G",
		[REEF_CONFIG_DURATION] = "is not a duration, like 200ms or 10s",
		[REEF_CONFIG_NUMBER] = "is not a number",
		[REEF_CONFIG_SWITCH] = "is neither yes nor no",
	};
	size_t used;

	if (setting->type != REEF_CONFIG_CHOICE) {
		snprintf(text, size, "%s", shapes[setting->type]);
		return;
	}
	used = (size_t)snprintf(text, size, "is none of");
	for (uint32_t i = 0; setting->choices[i] && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s %s",
					 i ? "," : "", setting->choices[i]);
}

static int check_number(struct reef_config *config,
			const struct reef_config_setting *setting,
			const char *where, const char *text, uint64_t *out)
{
	uint64_t most = setting->most ? setting->most : UINT64_MAX;
	char low[REEF_UNITS_TEXT_SIZE], high[REEF_UNITS_TEXT_SIZE], shape[128];
	int rc = parse_value(setting, text, out);

	if (rc == -EINVAL) {
		describe_form(setting, shape, sizeof(shape));
		return reef_config_fail(config, rc, "%s: %s: \"%.64s\" %s",
					where, setting->name, text, shape);
	}
	if (!is_ranged(setting) ||
	    (rc == 0 && *out >= setting->least && *out <= most))
		return 0;
	format_number(setting, setting->least, low);
	format_number(setting, most, high);
	if (!setting->most)
		return reef_config_fail(config, -EINVAL, "%s: %s: %.64s is %s",
					where, setting->name, text,
					rc ? "too much" : "too little");
	return reef_config_fail(config, -EINVAL,
				"%s: %s: %.64s is not between %s and %s", where,
				setting->name, text, low, high);
}

static int check_text(struct reef_config *config,
		      const struct reef_config_setting *setting,
		      const char *where, const char *text)
{
	const char *wrong = setting->check ? setting->check(text) : NULL;

	if (!wrong)
		return 0;
	return reef_config_fail(config, -EINVAL, "%s: %s: \"%.128s\" %s", where,
				setting->name, text, wrong);
}

static int add_item(struct reef_config_value *value, const char *text,
		    size_t size)
{
	char **items = realloc(value->items,
			       (value->count + 1) * sizeof(*value->items));

	if (!items)
		return -ENOMEM;
	value->items = items;
	items[value->count] = strndup(text, size);
	return items[value->count] ? (value->count++, 0) : -ENOMEM;
}

/* Put what the text of an item leaves out in front of it. */
static int complete_item(const struct reef_config_setting *setting, char **item)
{
	const char *prefix = setting->prefix ? setting->prefix(*item) : "";
	char *whole;

	if (!*prefix)
		return 0;
	if (asprintf(&whole, "%s%s", prefix, *item) < 0)
		return -ENOMEM;
	free(*item);
	*item = whole;
	return 0;
}

/* Make the text anew: the items with one blank between them. */
static int join_items(struct reef_config_value *value)
{
	size_t size = 1;
	char *text, *end;

	for (uint32_t i = 0; i < value->count; i++)
		size += strlen(value->items[i]) + 1;
	text = end = malloc(size);
	if (!text)
		return -ENOMEM;
	for (uint32_t i = 0; i < value->count; i++) {
		if (i)
			*end++ = ' ';
		end = stpcpy(end, value->items[i]);
	}
	*end = '\0';
	free(value->text);
	value->text = text;
	return 0;
}

/* An item with a '#' at its start would be a comment where the list is read
 * again, as a blank stands before it there. */
static int check_item(struct reef_config *config,
		      const struct reef_config_setting *setting,
		      const char *where, const char *text)
{
	if (text[0] == '#')
		return reef_config_fail(config, -EINVAL,
					"%s: %s: \"%.128s\" begins with #",
					where, setting->name, text);
	return check_text(config, setting, where, text);
}

/* Split a list into its items. */
static int split_list(struct reef_config *config,
		      const struct reef_config_setting *setting,
		      const char *where, struct reef_config_value *value)
{
	const char *from = value->text;
	char **item;
	size_t size;
	int rc = 0;

	while (!rc && *(from += strspn(from, ", \t"))) {
		size = strcspn(from, ", \t");
		rc = add_item(value, from, size);
		if (rc)
			break;
		item = &value->items[value->count - 1];
		rc = check_item(config, setting, where, *item);
		if (!rc)
			rc = complete_item(setting, item);
		from += size;
	}
	if (!rc && !value->count)
		rc = reef_config_fail(config, -EINVAL, "%s: %s has no value",
				      where, setting->name);
	return rc ? rc : join_items(value);
}

static int expand_path(struct reef_config *config,
		       const struct reef_config_setting *setting,
		       enum reef_config_source source, const char *where,
		       struct reef_config_value *value)
{
	char *path;
	int rc = reef_path_expand(config->environment, value->text, &path);

	if (rc == -ENOENT)
		return reef_config_fail(config, -EINVAL,
					"%s: %s: \"~\" is not known, because "
					"there is no home directory",
					where, setting->name);
	if (rc)
		return rc;
	free(value->text);
	value->text = path;
	/* A relative path in a file would begin nowhere in particular. */
	if (source == REEF_CONFIG_FILE && path[0] != '/')
		return reef_config_fail(config, -EINVAL,
					"%s: %s: \"%.128s\" does not begin "
					"with / or ~/",
					where, setting->name, path);
	return check_text(config, setting, where, path);
}

static bool has_control(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return true;
	return false;
}

/* Make a value of this setting from a text, or keep an error that says why
 * not. */
static int make_value(struct reef_config *config, uint32_t index,
		      const char *text, enum reef_config_source source,
		      const char *where, struct reef_config_value *value)
{
	const struct reef_config_setting *setting = &config->settings[index];
	const char *at = where ? where : "default";

	if (!*text)
		return reef_config_fail(config, -EINVAL, "%s: %s has no value",
					at, setting->name);
	if (has_control(text))
		return reef_config_fail(config, -EINVAL,
					"%s: %s has control characters in it",
					at, setting->name);
	value->source = source;
	value->text = strdup(text);
	value->where = where ? strdup(where) : NULL;
	if (!value->text || (where && !value->where))
		return -ENOMEM;
	switch (setting->type) {
	case REEF_CONFIG_TEXT:
		return check_text(config, setting, at, text);
	case REEF_CONFIG_PATH:
		return expand_path(config, setting, source, at, value);
	case REEF_CONFIG_LIST:
		return split_list(config, setting, at, value);
	default:
		return check_number(config, setting, at, text, &value->number);
	}
}

int reef_config_set(struct reef_config *config, uint32_t setting,
		    const char *text, enum reef_config_source source,
		    const char *where)
{
	struct reef_config_value *old = &config->values[setting], value = {0};
	char *joined = NULL;
	int rc;

	reef_assert(setting < config->count);
	/* A list that flags give several times grows. */
	if (config->settings[setting].type == REEF_CONFIG_LIST &&
	    source == REEF_CONFIG_FLAG && old->source == REEF_CONFIG_FLAG) {
		if (asprintf(&joined, "%s %s", old->text, text) < 0)
			return -ENOMEM;
		text = joined;
	}
	rc = make_value(config, setting, text, source, where, &value);
	free(joined);
	value.line = old->line;
	if (rc == 0 && source >= old->source) {
		clear_value(old);
		*old = value;
	} else {
		clear_value(&value);
	}
	return rc;
}

/* --- which file --- */

static int read_file(struct reef_config *config, const char *path,
		     bool must_exist)
{
	char *bytes;
	size_t size;
	FILE *file = fopen(path, "re");
	int rc = 0;

	if (!file && errno == ENOENT && !must_exist)
		return -ENOENT;
	if (!file)
		return reef_config_fail(config, -errno, "%s: %s", path,
					strerrordesc_np(errno));
	config->file = strdup(path);
	bytes = malloc(FILE_SIZE_MAX + 1);
	if (!bytes || !config->file) {
		rc = -ENOMEM;
		goto out;
	}
	errno = 0;
	size = fread(bytes, 1, FILE_SIZE_MAX + 1, file);
	if (ferror(file))
		rc = reef_config_fail(config, errno ? -errno : -EIO, "%s: %s",
				      path, strerrordesc_np(errno));
	else if (size > FILE_SIZE_MAX)
		rc = reef_config_fail(config, -EFBIG, "%s: over 1 MiB", path);
	else
		rc = reef_config_read(config, path, bytes, size);
out:
	free(bytes);
	fclose(file);
	return rc;
}

static int read_default_file(struct reef_config *config,
			     const char *system_file)
{
	char *path = NULL;
	int rc = reef_path_config(config->environment, &path);

	if (rc == 0)
		rc = read_file(config, path, false);
	free(path);
	if (rc != -ENOENT)
		return rc;
	rc = read_file(config,
		       system_file ? system_file : "/etc/reef/reef.conf",
		       false);
	return rc == -ENOENT ? 0 : rc;
}

int reef_config_load(struct reef_config *config,
		     const struct reef_config_input *input)
{
	const char *flag_file = NULL, *variable_file = NULL;
	int rc;

	config->environment = input->environment;
	rc = reef_config_read_flags(config, input, &flag_file);
	if (rc || config->wants_help)
		return rc;
	rc = reef_config_read_environment(config, &variable_file);
	if (rc)
		return rc;
	if (flag_file || variable_file)
		return read_file(config, flag_file ? flag_file : variable_file,
				 true);
	return read_default_file(config, input->system_file);
}

/* --- what came out --- */

uint64_t reef_config_number(const struct reef_config *config, uint32_t setting)
{
	return config->values[setting].number;
}

const char *reef_config_text(const struct reef_config *config, uint32_t setting)
{
	return config->values[setting].text;
}

uint32_t reef_config_count(const struct reef_config *config, uint32_t setting)
{
	return config->values[setting].count;
}

const char *reef_config_item(const struct reef_config *config, uint32_t setting,
			     uint32_t index)
{
	reef_assert(index < config->values[setting].count);
	return config->values[setting].items[index];
}

const char *reef_config_name(const struct reef_config *config, uint32_t setting)
{
	reef_assert(setting < config->count);
	return config->settings[setting].name;
}

enum reef_config_source reef_config_source(const struct reef_config *config,
					   uint32_t setting)
{
	return config->values[setting].source;
}

bool reef_config_wants_help(const struct reef_config *config)
{
	return config->wants_help;
}

bool reef_config_wants_check(const struct reef_config *config)
{
	return config->wants_check;
}

uint32_t reef_config_rest_count(const struct reef_config *config)
{
	return config->rest_count;
}

const char *reef_config_rest(const struct reef_config *config, uint32_t index)
{
	return index < config->rest_count ? config->rest[index] : NULL;
}

const char *reef_config_file(const struct reef_config *config)
{
	return config->file;
}
