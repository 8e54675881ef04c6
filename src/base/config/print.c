/* print.c - the settings in force, and the flags there are. */
#include "base/config/internal.h"

#include <string.h>

#define COLUMN 30 /* where explanations begin */

static void print_aligned(FILE *stream, const char *left, const char *right)
{
	int size = (int)strlen(left);

	/* A left part that is too wide gets a line of its own. */
	if (size >= COLUMN)
		fprintf(stream, "%s\n%*s%s\n", left, COLUMN, "", right);
	else
		fprintf(stream, "%-*s%s\n", COLUMN, left, right);
}

void reef_config_print(const struct reef_config *config, FILE *stream)
{
	if (config->file)
		fprintf(stream, "# file: %s\n", config->file);
	else
		fprintf(stream, "# no file was read\n");
	for (uint32_t i = 0; i < config->count; i++) {
		const struct reef_config_value *value = &config->values[i];
		const char *name = config->settings[i].name;

		if (value->text)
			fprintf(stream, "%s = %s  # %s\n", name, value->text,
				value->where ? value->where : "default");
		else
			fprintf(stream, "# %s is not set\n", name);
	}
}

static const char *value_name(const struct reef_config_setting *setting,
			      char *text, size_t size)
{
	static const char *const names[] = {
		[REEF_CONFIG_TEXT] = "TEXT",
		[REEF_CONFIG_PATH] = "PATH",
		[REEF_CONFIG_LIST] = "LIST",
		[REEF_CONFIG_SIZE] = "SIZE",
		[REEF_CONFIG_NUMBER] = "N",
		[REEF_CONFIG_DURATION] = "TIME",
		[REEF_CONFIG_SWITCH] = "yes|no",
	};
	size_t used = 0;

	if (setting->value_name)
		return setting->value_name;
	if (setting->type != REEF_CONFIG_CHOICE)
		return names[setting->type];
	for (uint32_t i = 0; setting->choices[i] && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s",
					 i ? "|" : "", setting->choices[i]);
	return text;
}

void reef_config_help_flag(void *stream, const struct reef_config_flag *flag)
{
	char left[160];

	snprintf(left, sizeof(left), "  --%s%s%s", flag->name,
		 flag->value_name ? " " : "",
		 flag->value_name ? flag->value_name : "");
	print_aligned(stream, left, flag->help);
}

void reef_config_each_flag(const struct reef_config *config,
			   const struct reef_config_input *input,
			   void (*each)(void *context,
					const struct reef_config_flag *flag),
			   void *context)
{
	static const struct reef_config_flag common[] = {
		{"config", "FILE", "settings are read from it", NULL, NULL},
		{"check-config", NULL,
		 "print the settings and where each came from", NULL, NULL},
		{"help", NULL, "this text", NULL, NULL},
		{0},
	};
	const struct reef_config_setting *setting = config->settings;
	const struct reef_config_flag *flag;
	char text[256], words[96];

	for (flag = input->flags; flag && flag->name; flag++)
		each(context, flag);
	for (uint32_t i = 0; i < config->count; i++, setting++) {
		if (!(setting->uses & input->uses))
			continue;
		snprintf(text, sizeof(text), "%s%s%s", setting->help,
			 setting->initial ? "; " : "",
			 setting->initial ? setting->initial : "");
		each(context, &(const struct reef_config_flag){
				      .name = setting->name,
				      .value_name = value_name(setting, words,
							       sizeof(words)),
				      .help = text,
			      });
	}
	for (flag = common; flag->name; flag++)
		each(context, flag);
}
