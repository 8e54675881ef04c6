/* error.c - names and texts of error codes, ours and errno's. */
#include <reef/error.h>

#include <errno.h>
#include <limits.h>
#include <string.h>

static int positive(int code)
{
	if (code == INT_MIN)
		return INT_MAX;
	return code < 0 ? -code : code;
}

const char *reef_error_text(int code)
{
	const char *text;

	code = positive(code);
	switch (code) {
#define X(name, number, description)                                           \
	case number:                                                           \
		return description;
		REEF_ERRORS(X)
#undef X
	case EDQUOT: /* no disk is meant */
		return "over the quota of the space, or a limit of its user";
	}
	/* Unlike that of strerror the text is not translated, and its storage
	 * is static. */
	text = strerrordesc_np(code);
	return text ? text : "unknown error";
}

const char *reef_error_name(int code)
{
	const char *text;

	code = positive(code);
	switch (code) {
#define X(name, number, description)                                           \
	case number:                                                           \
		return #name;
		REEF_ERRORS(X)
#undef X
	}
	text = strerrorname_np(code);
	return text ? text : "unknown";
}
