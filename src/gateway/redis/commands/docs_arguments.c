/* docs_arguments.c - the arguments of a command, from the notation of docs.h to
 * what COMMAND DOCS answers. */
#include "gateway/redis/commands/docs.h"

#include <string.h>

struct text {
	const char *bytes;
	size_t size; /* 0: there is none */
};

struct argument {
	struct text name, type, token, since, deprecated, inner;
	int key; /* -1: none */
	bool is_optional, is_multiple, is_multiple_token;
};

/* What stands before the next of `ends`; moves there. */
static struct text cut(const char **at, const char *ends)
{
	struct text text = {*at, strcspn(*at, ends)};

	*at += text.size;
	return text;
}

/* From behind a { to its }; moves behind that. */
static struct text cut_inner(const char **at)
{
	const char *from = *at;
	uint32_t depth = 1;

	for (; depth; ++*at)
		depth += (uint32_t)((**at == '{') - (**at == '}'));
	return (struct text){from, (size_t)(*at - from) - 1};
}

/* The next of a list that ends at `end` (docs.h). */
static bool next_argument(const char **at, const char *end,
			  struct argument *argument)
{
	static const char marks[] = "=/@!?*+{} ";
	size_t word = strcspn(*at, "{} ");

	*argument = (struct argument){.type = {"pure-token", 10}, .key = -1};
	if (*at >= end)
		return false;
	argument->name = cut(at, memchr(*at, '<', word) ? "<" : marks);
	if (**at == '<') {
		++*at;
		argument->type = cut(at, ">");
		++*at;
	}
	while (*at < end && **at != ' ') {
		switch (*(*at)++) {
		case '=':
			argument->key = *(*at)++ - '0';
			break;
		case '/':
			argument->token = cut(at, marks + 2);
			break;
		case '@':
			argument->since = cut(at, marks + 3);
			break;
		case '!':
			argument->deprecated = cut(at, marks + 4);
			break;
		case '?':
			argument->is_optional = true;
			break;
		case '*':
			argument->is_multiple = true;
			break;
		case '+':
			argument->is_multiple_token = true;
			break;
		case '{':
			argument->inner = cut_inner(at);
			break;
		}
	}
	*at += *at < end;
	return true;
}

/* The pairs of a map are counted as they are told. */
static void tell(struct redis_reply *reply, const char *name,
		 const struct text *text, uint64_t *count)
{
	if (!text->size)
		return;
	redis_reply_text(reply, name);
	redis_reply_bulk(reply, text->bytes, text->size);
	++*count;
}

static void tell_flags(struct redis_reply *reply,
		       const struct argument *argument, uint64_t *count)
{
	uint64_t flags = (uint64_t)argument->is_optional +
			 argument->is_multiple + argument->is_multiple_token;

	if (!flags)
		return;
	redis_reply_text(reply, "flags");
	redis_reply_set(reply, flags);
	if (argument->is_optional)
		redis_reply_status(reply, "optional");
	if (argument->is_multiple)
		redis_reply_status(reply, "multiple");
	if (argument->is_multiple_token)
		redis_reply_status(reply, "multiple_token");
	++*count;
}

static void reply_argument(struct redis_reply *reply,
			   const struct argument *argument)
{
	struct redis_mark mark = redis_reply_mark(reply);
	uint64_t count = 0;

	tell(reply, "name", &argument->name, &count);
	tell(reply, "type", &argument->type, &count);
	if (argument->key >= 0) {
		redis_reply_text(reply, "key_spec_index");
		redis_reply_integer(reply, argument->key);
		count++;
	}
	tell(reply, "token", &argument->token, &count);
	tell(reply, "since", &argument->since, &count);
	tell(reply, "deprecated_since", &argument->deprecated, &count);
	tell_flags(reply, argument, &count);
	if (argument->inner.size) {
		redis_reply_text(reply, "arguments");
		redis_reply_arguments(reply, argument->inner.bytes,
				      argument->inner.size);
		count++;
	}
	redis_reply_wrap(reply, mark, '%', count);
}

void redis_reply_arguments(struct redis_reply *reply, const char *at,
			   size_t size)
{
	struct redis_mark mark = redis_reply_mark(reply);
	const char *end = at + size;
	struct argument argument;
	uint64_t count = 0;

	for (; next_argument(&at, end, &argument); count++)
		reply_argument(reply, &argument);
	redis_reply_wrap(reply, mark, '*', count);
}
