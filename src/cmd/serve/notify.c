/* notify.c - see notify.h. */
#include "cmd/serve/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define US UINT64_C(1000)
#define TEXT_MAX 1024

static int notify_fd = -1;
static struct sockaddr_un place;
static socklen_t place_size;
static uint64_t alive_ns;

/* Read a number of the environment; 0: there is none. */
static uint64_t read_number(const char *name)
{
	const char *text = getenv(name);
	unsigned long long number;
	char *end;

	if (!text || *text < '0' || *text > '9')
		return 0;
	errno = 0;
	number = strtoull(text, &end, 10);
	return errno || *end ? 0 : number;
}

static void open_socket(const char *path)
{
	size_t size = path ? strlen(path) : 0;

	if (size < 2 || size >= sizeof(place.sun_path) ||
	    (path[0] != '/' && path[0] != '@'))
		return;
	place.sun_family = AF_UNIX;
	memcpy(place.sun_path, path, size + 1);
	place_size = offsetof(struct sockaddr_un, sun_path) + (socklen_t)size;
	/* A name that is not in the file system begins with a zero. */
	if (path[0] == '@')
		place.sun_path[0] = '\0';
	else
		place_size++;
	notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

void notify_begin(void)
{
	uint64_t pid = read_number("WATCHDOG_PID");
	uint64_t watchdog_us = read_number("WATCHDOG_USEC");

	open_socket(getenv("NOTIFY_SOCKET"));
	/* The watch may be meant for another process. */
	if (notify_fd >= 0 && (!pid || pid == (uint64_t)getpid()) &&
	    watchdog_us <= UINT64_MAX / US)
		alive_ns = watchdog_us * US / 2;
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

void notify_send(const char *format, ...)
{
	char text[TEXT_MAX];
	va_list arguments;
	int size;

	if (notify_fd < 0)
		return;
	va_start(arguments, format);
	size = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (size < 0)
		return;
	if ((size_t)size >= sizeof(text))
		size = sizeof(text) - 1;
	sendto(notify_fd, text, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL,
	       (const struct sockaddr *)&place, place_size);
}

uint64_t notify_alive_ns(void)
{
	return alive_ns;
}

void notify_alive(void)
{
	if (alive_ns)
		notify_send("WATCHDOG=1");
}
