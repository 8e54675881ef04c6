/* settings_check.c - what the text of a setting must be. Each returns what is
 * wrong with it, for people, or NULL. */
#include "pool/settings_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

static const char *check_port(const char *text)
{
	size_t size = strspn(text, "0123456789");

	if (size == 0 || size > 5 || text[size] ||
	    strtoul(text, NULL, 10) > 65535)
		return "has no port from 0 to 65535 at its end";
	return NULL;
}

static const char *check_inet(const char *text)
{
	const char *colon = strrchr(text, ':');

	if (!colon)
		return "has no port, as in tcp:HOST:PORT";
	if (text[0] == '[' && colon > text && colon[-1] != ']')
		return "has no ] before its port";
	if (text[0] != '[' && strchr(text, ':') != colon)
		return "needs brackets, as in tcp:[ADDRESS]:PORT";
	return check_port(colon + 1);
}

static const char *check_unix(const char *text)
{
	if ((text[0] != '/' && text[0] != '@') || !text[1])
		return "is neither shm:/PATH nor shm:@NAME";
	if (strlen(text) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return "is too long for a socket";
	return NULL;
}

/* True if a text can only be meant as HOST:PORT: it has one colon, or an IPv6
 * address in brackets. */
static bool is_host_and_port(const char *text)
{
	const char *colon = strchr(text, ':');

	return text[0] == '[' || (colon && !strchr(colon + 1, ':'));
}

static bool has_fabric(const char *text)
{
	return strncmp(text, "shm:", 4) == 0 || strncmp(text, "tcp:", 4) == 0 ||
	       strncmp(text, "verbs:", 6) == 0;
}

const char *settings_check_address(const char *text)
{
	if (strncmp(text, "shm:", 4) == 0)
		return check_unix(text + 4);
	if (has_fabric(text))
		return check_inet(strchr(text, ':') + 1);
	if (is_host_and_port(text))
		return check_inet(text);
	return strchr(text, ':') ? "does not begin with shm:, tcp: or verbs:"
				 : "has no port, as in HOST:PORT";
}

/* HOST:PORT means tcp:HOST:PORT. */
const char *settings_prefix_address(const char *text)
{
	return has_fabric(text) ? "" : "tcp:";
}

const char *settings_check_redis_listen(const char *text)
{
	if (strcmp(text, "none") == 0)
		return NULL;
	return strchr(text, ':') ? check_inet(text)
				 : "is neither HOST:PORT nor none";
}

const char *settings_check_http(const char *text)
{
	return strchr(text, ':') ? check_inet(text) : "is not HOST:PORT";
}

const char *settings_check_fabric(const char *text)
{
	if (strcmp(text, "shm") != 0 && strcmp(text, "tcp") != 0 &&
	    strcmp(text, "verbs") != 0)
		return "is none of shm, tcp, verbs";
	return NULL;
}

const char *settings_check_keep(const char *text)
{
	if (strcmp(text, "holder") != 0 && strcmp(text, "image") != 0 &&
	    strcmp(text, "none") != 0)
		return "is none of holder, image, none";
	return NULL;
}

/* Only the kind of target is checked; whether it is well formed is reef_open's
 * to say. */
const char *settings_check_pool(const char *text)
{
	if (strcmp(text, "local") == 0 || strncmp(text, "reef://", 7) == 0 ||
	    strncmp(text, "embedded:", 9) == 0)
		return NULL;
	/* Of several places the first must be HOST:PORT. */
	if (text[0] == '[' || strcspn(text, ":") < strcspn(text, ","))
		return NULL;
	return "is neither local nor HOST:PORT nor embedded:SIZE";
}

const char *settings_check_name(const char *text)
{
	size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyz"
				   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	if (text[size])
		return "has other characters than letters, digits, . _ -";
	return size > NAME_MOST ? "is longer than 63 characters" : NULL;
}
