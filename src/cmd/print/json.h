/* json.h - JSON, as every command prints it.
 *
 * A writer keeps the commas, the quotes and what is open, so that whatever is
 * written by it is JSON:
 *
 *	struct reef_json json = {.stream = stdout};
 *
 *	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
 *	reef_json_string(&json, "name", name);
 *	reef_json_number(&json, "keys", keys);
 *	reef_json_end(&json);
 *
 * (1) A member of an object has a key, an element of an array, and the
 *outermost value, none (NULL). Keys are the program's own words, not text from
 *     outside.
 * (2) A text that is not UTF-8 has U+FFFD in place of what is not. Bytes, which
 *     are somebody's data, are lost by nobody: if they are not UTF-8, the
 *     member KEY_base64 has them in place of KEY.
 * (3) An outermost value ends with a newline, so a stream may hold several: one
 *     a line.
 *
 * Thread: owner. */
#ifndef REEF_CMD_JSON_H
#define REEF_CMD_JSON_H

#include "wire/cursor.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define REEF_JSON_DEPTH_MAX 16u

enum reef_json_kind { REEF_JSON_OBJECT, REEF_JSON_ARRAY };

struct reef_json {
	FILE *stream;
	/* The writer's own; zero at first. */
	uint32_t depth;
	enum reef_json_kind kinds[REEF_JSON_DEPTH_MAX]; /* of what is open */
	bool filled[REEF_JSON_DEPTH_MAX];		/* it has a member */
};

/* Begin an object or an array, and end what was begun last. */
void reef_json_begin(struct reef_json *json, const char *key,
		     enum reef_json_kind kind);
void reef_json_end(struct reef_json *json);

void reef_json_string(struct reef_json *json, const char *key,
		      const char *text);
void reef_json_text(struct reef_json *json, const char *key,
		    struct reef_text text);
/* A member of an object (2); the key has at most 20 characters. */
void reef_json_bytes(struct reef_json *json, const char *key, const void *bytes,
		     size_t size);
void reef_json_number(struct reef_json *json, const char *key, uint64_t value);
/* Six digits, or whole from a million on; what is not finite is null. */
void reef_json_double(struct reef_json *json, const char *key, double value);
void reef_json_bool(struct reef_json *json, const char *key, bool value);
void reef_json_null(struct reef_json *json, const char *key);

#endif
