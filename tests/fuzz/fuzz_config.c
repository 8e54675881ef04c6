/* fuzz_config.c - a configuration file.
 *
 * Input: the bytes of the file. What is printed of it is a file that says the
 * same. */
#include "fuzz.h"

#include "base/config/config.h"

#include <errno.h>
#include <string.h>

enum { NAME, PLACE, LIST, SIZE, TIME, NUMBER, SWITCH, CHOICE, COUNT };

static const char *const choices[] = {"red", "green", NULL};

#define SETTING(word, kind)                                                    \
	{                                                                      \
		.name = (word), .variable = "X", .type = REEF_CONFIG_##kind,   \
		.help = "x", .choices = choices                                \
	}

static const struct reef_config_setting settings[COUNT] = {
	[NAME] = SETTING("name", TEXT),
	[PLACE] = SETTING("place", PATH),
	[LIST] = SETTING("list", LIST),
	[SIZE] = SETTING("size", SIZE),
	[TIME] = SETTING("time", DURATION),
	[NUMBER] = SETTING("number", NUMBER),
	[SWITCH] = SETTING("switch", SWITCH),
	[CHOICE] = SETTING("choice", CHOICE),
};

static char *print(const struct reef_config *config, size_t *size)
{
	char *text = NULL;
	FILE *stream = open_memstream(&text, size);

	FUZZ_CHECK(stream);
	reef_config_print(config, stream);
	fclose(stream);
	return text;
}

static void read_again(const struct reef_config *config)
{
	struct reef_config *again;
	const char *before, *after;
	size_t size;
	char *text;

	text = print(config, &size);
	FUZZ_CHECK(reef_config_create(settings, COUNT, &again) == 0);
	FUZZ_CHECK(reef_config_read(again, "again", text, size) == 0);
	for (uint32_t i = 0; i < COUNT; i++) {
		before = reef_config_text(config, i);
		after = reef_config_text(again, i);
		FUZZ_CHECK(!before == !after);
		FUZZ_CHECK(!before || strcmp(before, after) == 0);
		FUZZ_CHECK(reef_config_number(config, i) ==
			   reef_config_number(again, i));
	}
	reef_config_destroy(again);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct reef_config *config;
	int rc;

	FUZZ_CHECK(reef_config_create(settings, COUNT, &config) == 0);
	rc = reef_config_read(config, "fuzz", (const char *)bytes, size);
	FUZZ_CHECK(rc == 0 || rc == -EINVAL);
	if (rc == 0)
		read_again(config);
	else
		FUZZ_CHECK(*reef_config_error(config));
	reef_config_destroy(config);
	return 0;
}
