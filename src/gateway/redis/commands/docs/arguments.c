/* arguments.c - the arguments of a command, from the notation of docs.h to
 * what COMMAND DOCS answers, which has them in the same order. */
#include "gateway/redis/commands/docs/docs.h"

#include <ctype.h>
#include <string.h>

#define WORD_SIZE 32

static void reply_pair(struct redis_reply *reply, const char *name,
		       const char *text, size_t size)
{
	redis_reply_text(reply, name);
	redis_reply_bulk(reply, text, size);
}

/* Answer name and type; returns what is behind them. A word in capitals is its
 * own name, in lower case. */
static const char *reply_name(struct redis_reply *reply, const char *at,
			      uint64_t *count)
{
	const size_t word = strcspn(at, "{} ");
	const char *type = memchr(at, '<', word);
	size_t i, size = type ? (size_t)(type - at) : strcspn(at, "#=/@!?*{} ");
	char lower[WORD_SIZE];

	for (i = 0; i < size && i < WORD_SIZE; i++)
		lower[i] = (char)tolower((unsigned char)at[i]);
	reply_pair(reply, "name", lower, i);
	redis_reply_text(reply, "type");
	*count = 2;
	if (type) {
		size = strcspn(type, ">");
		redis_reply_bulk(reply, type + 1, size - 1);
		return type + size + 1;
	}
	if (at[size] == '=') {
		redis_reply_text(reply, "key");
		redis_reply_text(reply, "key_spec_index");
		redis_reply_integer(reply, at[size + 1] - '0');
		++*count;
		return at + size + 2;
	}
	if (at[size] == '#') {
		redis_reply_text(reply, "integer");
		return at + size + 1;
	}
	if (isupper((unsigned char)*at)) {
		redis_reply_text(reply, "pure-token");
		reply_pair(reply, "token", at, size);
		++*count;
	} else {
		redis_reply_text(reply, "string");
	}
	return at + size;
}

/* Answer one argument; returns what is behind it. */
static const char *reply_argument(struct redis_reply *reply, const char *at)
{
	static const char *const texts[] = {"/token", "@since",
					    "!deprecated_since"};
	struct redis_mark mark = redis_reply_mark(reply);
	uint64_t count;
	size_t i, size;

	at = reply_name(reply, at, &count);
	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (*at != texts[i][0])
			continue;
		size = strcspn(++at, "@!?*{} ");
		reply_pair(reply, texts[i] + 1, at, size);
		at += size;
		count++;
	}
	size = strspn(at, "?*");
	if (size) {
		redis_reply_text(reply, "flags");
		redis_reply_set(reply, size);
		count++;
	}
	for (; size; size--)
		redis_reply_status(reply,
				   *at++ == '?' ? "optional" : "multiple");
	if (*at == '{') {
		redis_reply_text(reply, "arguments");
		at = redis_reply_arguments(reply, at + 1) + 1;
		count++;
	}
	redis_reply_wrap(reply, mark, '%', count);
	return at;
}

const char *redis_reply_arguments(struct redis_reply *reply, const char *at)
{
	struct redis_mark mark = redis_reply_mark(reply);
	uint64_t count = 0;

	for (; *at && *at != '}'; count++) {
		at = reply_argument(reply, at);
		at += *at == ' ';
	}
	redis_reply_wrap(reply, mark, '*', count);
	return at;
}
