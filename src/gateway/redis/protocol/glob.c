/* glob.c - patterns, without recursion: a `*` that comes later makes the
 * choices of those before it irrelevant, so only the last one is ever tried
 * again, with one byte more. */
#include "gateway/redis/protocol/glob.h"

struct glob {
	const char *at, *end; /* of the pattern */
	bool either_case;
	bool (*pace)(void *context); /* may be NULL */
	void *context;
	size_t steps; /* since the last call of pace */
};

static char fold(char c, bool either_case)
{
	return either_case && c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* True if the next member of a set, a range or a byte, matches; moves the
 * pattern behind it. */
static bool matches_member(struct glob *glob, char c)
{
	size_t left = (size_t)(glob->end - glob->at);
	signed char low, high, tested;

	if (left >= 2 && glob->at[0] == '\\') {
		glob->at += 2;
		return glob->at[-1] == c;
	}
	if (left < 3 || glob->at[1] != '-') {
		glob->at++;
		return fold(glob->at[-1], glob->either_case) ==
		       fold(c, glob->either_case);
	}
	low = (signed char)fold(glob->at[0], glob->either_case);
	high = (signed char)fold(glob->at[2], glob->either_case);
	tested = (signed char)fold(c, glob->either_case);
	glob->at += 3;
	if ((signed char)glob->at[-3] > (signed char)glob->at[-1])
		return tested >= high && tested <= low;
	return tested >= low && tested <= high;
}

/* True if a set, which begins behind its `[`, matches; moves the pattern behind
 * its `]`. */
static bool matches_set(struct glob *glob, char c)
{
	bool is_not = glob->at < glob->end && *glob->at == '^';
	bool is_in = false;

	if (is_not)
		glob->at++;
	while (glob->at < glob->end && *glob->at != ']') {
		is_in |= matches_member(glob, c);
		glob->steps++;
	}
	if (glob->at < glob->end)
		glob->at++;
	return is_in != is_not;
}

/* True if the next thing that stands for one byte matches; moves the pattern
 * behind it. */
static bool matches_one(struct glob *glob, char c)
{
	char p = *glob->at++;

	if (p == '?')
		return true;
	if (p == '[')
		return matches_set(glob, c);
	if (p == '\\' && glob->at < glob->end)
		p = *glob->at++;
	return fold(p, glob->either_case) == fold(c, glob->either_case);
}

static void skip_stars(struct glob *glob)
{
	while (glob->at < glob->end && *glob->at == '*')
		glob->at++;
}

/* True unless the pace says that it is to end. */
static bool keep_pace(struct glob *glob)
{
	if (++glob->steps < GLOB_PACE || !glob->pace)
		return true;
	glob->steps = 0;
	return glob->pace(glob->context);
}

static bool matches_text(struct glob *glob, const char *text, size_t size)
{
	const char *end = text + size, *again = NULL, *star = NULL;

	if (size == 0)
		return glob->at == glob->end;
	while (text < end) {
		if (!keep_pace(glob))
			return false;
		if (glob->at < glob->end && *glob->at == '*') {
			skip_stars(glob);
			if (glob->at == glob->end)
				return true;
			star = glob->at;
			again = text;
			continue;
		}
		if (glob->at < glob->end && matches_one(glob, *text)) {
			text++;
			continue;
		}
		if (!star)
			return false;
		glob->at = star;
		text = ++again;
	}
	skip_stars(glob);
	return glob->at == glob->end;
}

bool redis_glob(const char *pattern, size_t pattern_size, const char *text,
		size_t text_size, bool either_case)
{
	struct glob glob = {
		.at = pattern,
		.end = pattern + pattern_size,
		.either_case = either_case,
	};

	return matches_text(&glob, text, text_size);
}

bool redis_glob_at_pace(const char *pattern, size_t pattern_size,
			const char *text, size_t text_size,
			bool (*pace)(void *context), void *context)
{
	struct glob glob = {
		.at = pattern,
		.end = pattern + pattern_size,
		.pace = pace,
		.context = context,
	};

	return matches_text(&glob, text, text_size);
}

bool redis_glob_is_all(const char *pattern, size_t pattern_size)
{
	return pattern_size == 1 && pattern[0] == '*';
}
