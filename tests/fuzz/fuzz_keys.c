/* fuzz_keys.c - keys, credentials and tokens as text.
 *
 * Input: how to go about it, and then
 *   TEXT      a text that somebody typed
 *   MISTYPE   a good text, and changes to it (position, character): it is
 *             refused unless they came to nothing */
#include "fuzz.h"

#include "pool/keys.h"

#include <reef/error.h>
#include <string.h>

enum mode { TEXT, MISTYPE, MODES };

static void refused(int rc)
{
	FUZZ_CHECK(rc == -REEF_ECORRUPT || rc == -REEF_EVERSION);
}

/* What is parsed is formatted to the same text. */
static void parse_each(const char *text)
{
	char again[REEF_KEY_TEXT_SIZE];
	struct reef_credential credential;
	struct reef_node_key node;
	struct reef_token token;
	struct reef_key key;
	int passed = 0, rc;

	rc = reef_key_parse(text, &key);
	if (rc == 0) {
		reef_key_format(&key, again);
		passed++;
	} else {
		refused(rc);
	}
	rc = reef_node_key_parse(text, &node);
	if (rc == 0) {
		reef_node_key_format(&node, again);
		passed++;
	} else {
		refused(rc);
	}
	rc = reef_credential_parse(text, &credential);
	if (rc == 0) {
		reef_credential_format(&credential, again);
		passed++;
	} else {
		refused(rc);
	}
	rc = reef_token_parse(text, &token);
	if (rc == 0) {
		FUZZ_CHECK(token.rights != 0 && token.rights <= REEF_RIGHT_ALL);
		reef_token_format(&token, again);
		passed++;
	} else {
		refused(rc);
	}
	FUZZ_CHECK(passed <= 1);
	FUZZ_CHECK(!passed || strcmp(text, again) == 0);
}

static void mistype(struct fuzz_input *input)
{
	char text[REEF_KEY_TEXT_SIZE], good[REEF_KEY_TEXT_SIZE];
	struct reef_token token = {
		.space = 7,
		.era = 2,
		.rights = REEF_RIGHT_READ,
		.key = {{1, 2, 3}},
	};
	size_t first = sizeof(text), last = 0, at;

	reef_token_format(&token, good);
	memcpy(text, good, sizeof(text));
	while (input->size >= 2) {
		at = fuzz_take(input) % strlen(good);
		text[at] = (char)fuzz_take(input);
	}
	for (at = 0; at < strlen(good); at++)
		if (text[at] != good[at]) {
			first = at < first ? at : first;
			last = at;
		}
	/* Six characters are 30 bits, which the sum finds in any case. */
	if (first <= last && last - first < 6)
		refused(reef_token_parse(text, &token));
	parse_each(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_input input = {bytes, size};
	char *text;

	if (fuzz_take(&input) % MODES == MISTYPE) {
		mistype(&input);
		return 0;
	}
	text = malloc(input.size + 1);
	FUZZ_CHECK(text);
	if (input.size > 0)
		memcpy(text, input.bytes, input.size);
	text[input.size] = '\0';
	parse_each(text);
	free(text);
	return 0;
}
