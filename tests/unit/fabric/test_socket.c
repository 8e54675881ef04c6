/* Addresses, and sockets over loopback and a directory of their own. */
#include "fabric/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static void socket_inet_address_round_trip(void **state)
{
	static const char *const same[] = {"127.0.0.1:80", "[::1]:65535",
					   "0.0.0.0:0"};
	struct reef_address address;
	char text[64];

	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		assert_int_equal(reef_address_parse_inet(same[i], &address), 0);
		assert_int_equal(
			reef_address_format(&address, text, sizeof(text)), 0);
		assert_string_equal(text, same[i]);
	}
	assert_int_equal(reef_address_format(&address, text, 4), -ENAMETOOLONG);
}

static void socket_inet_nonsense_refused(void **state)
{
	static const char *const bad[] = {
		"",	     "127.0.0.1",  ":",		 "127.0.0.1:",
		"1.2.3.4:x", "1.2.3.4:-1", "1.2.3.4: 1", "1.2.3.4:65536",
		"::1:80",    "[::1:80",	   "[]80",	 "1.2.3.4:000001"};
	struct reef_address address;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(reef_address_parse_inet(bad[i], &address),
				 -EINVAL);
}

static void socket_unix_address_round_trip(void **state)
{
	static const char *const same[] = {"/tmp/x", "@name"};
	struct reef_address address;
	char text[200];

	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		assert_int_equal(reef_address_parse_unix(same[i], &address), 0);
		assert_int_equal(
			reef_address_format(&address, text, sizeof(text)), 0);
		assert_string_equal(text, same[i]);
	}
	assert_int_equal(reef_address_parse_unix("x", &address), -EINVAL);
	assert_int_equal(reef_address_parse_unix("@", &address), -EINVAL);
	memset(text, '/', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(reef_address_parse_unix(text, &address),
			 -ENAMETOOLONG);
}

static void socket_loopback_addresses_known(void **state)
{
	static const struct {
		const char *text;
		bool is_loopback;
	} given[] = {
		{"127.0.0.1:1", true},
		{"127.255.3.4:1", true},
		{"[::1]:1", true},
		{"[::ffff:127.0.0.1]:1", true},
		{"126.255.255.255:1", false},
		{"128.0.0.1:1", false},
		{"0.0.0.0:1", false},
		{"[::]:1", false},
		{"[::ffff:10.0.0.1]:1", false},
		{"[fe80::1]:1", false},
		{"[7f00::1]:1", false},
	};
	struct reef_address address;

	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
		assert_int_equal(
			reef_address_parse_inet(given[i].text, &address), 0);
		assert_int_equal(reef_address_is_loopback(&address),
				 given[i].is_loopback);
	}
	assert_int_equal(reef_address_parse_unix("@x", &address), 0);
	assert_true(reef_address_is_loopback(&address));
	/* Not connected: not known, so it is taken for a stranger's. */
	assert_false(reef_socket_is_loopback(-1));
}

static int connect_fully(const struct reef_address *address)
{
	struct pollfd pollfd = {.events = POLLOUT};
	int rc;

	pollfd.fd = reef_socket_connect(address);
	if (pollfd.fd < 0)
		return pollfd.fd;
	while ((rc = reef_socket_connected(pollfd.fd)) == -EAGAIN)
		poll(&pollfd, 1, 1000);
	if (rc < 0) {
		close(pollfd.fd);
		return rc;
	}
	return pollfd.fd;
}

static void exchange(int listener, const struct reef_address *address)
{
	struct pollfd pollfd = {.fd = listener, .events = POLLIN};
	int connected = connect_fully(address), accepted;
	char byte = 0;

	assert_true(connected >= 0);
	poll(&pollfd, 1, 1000);
	accepted = reef_socket_accept(listener);
	assert_true(accepted >= 0);
	assert_true(fcntl(accepted, F_GETFL) & O_NONBLOCK);
	assert_int_equal(fcntl(accepted, F_GETFD), FD_CLOEXEC);
	assert_int_equal(reef_socket_accept(listener), -EAGAIN);
	assert_int_equal(write(connected, "x", 1), 1);
	pollfd.fd = accepted;
	poll(&pollfd, 1, 1000);
	assert_int_equal(read(accepted, &byte, 1), 1);
	assert_int_equal(byte, 'x');
	close(connected);
	close(accepted);
}

static void socket_tcp_real_port_reported(void **state)
{
	struct reef_address address, bound;
	char text[64];
	int listener;

	assert_int_equal(reef_address_parse_inet("127.0.0.1:0", &address), 0);
	listener = reef_socket_listen(&address, &bound);
	assert_true(listener >= 0);
	assert_int_equal(reef_address_format(&bound, text, sizeof(text)), 0);
	assert_string_not_equal(text, "127.0.0.1:0");
	assert_int_equal(reef_address_parse_inet(text, &address), 0);
	exchange(listener, &address);
	assert_int_equal(reef_socket_listen(&address, NULL), -EADDRINUSE);
	reef_socket_unlisten(listener);
	assert_int_equal(connect_fully(&address), -ECONNREFUSED);
}

static void make_path(char path[64])
{
	char folder[] = "/tmp/reef-socket-XXXXXX";

	assert_non_null(mkdtemp(folder));
	snprintf(path, 64, "%s/s", folder);
}

static void remove_path(char path[64])
{
	unlink(path);
	*strrchr(path, '/') = '\0';
	assert_int_equal(rmdir(path), 0);
}

static void socket_unix_file_private_and_removed(void **state)
{
	struct reef_address address;
	struct stat status;
	char path[64];
	int listener;

	make_path(path);
	assert_int_equal(reef_address_parse_unix(path, &address), 0);
	listener = reef_socket_listen(&address, NULL);
	assert_true(listener >= 0);
	assert_int_equal(lstat(path, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	exchange(listener, &address);
	assert_int_equal(reef_socket_listen(&address, NULL), -EADDRINUSE);
	reef_socket_unlisten(listener);
	assert_int_equal(lstat(path, &status), -1);
	remove_path(path);
}

static void socket_unix_stale_file_replaced(void **state)
{
	struct reef_address address;
	char path[64];
	int listener;

	make_path(path);
	assert_int_equal(reef_address_parse_unix(path, &address), 0);
	listener = reef_socket_listen(&address, NULL);
	assert_true(listener >= 0);
	close(listener); /* as if killed */
	assert_int_equal(connect_fully(&address), -ECONNREFUSED);
	listener = reef_socket_listen(&address, NULL);
	assert_true(listener >= 0);
	exchange(listener, &address);
	reef_socket_unlisten(listener);
	remove_path(path);
}

static void socket_unix_other_file_left_alone(void **state)
{
	struct reef_address address;
	struct stat status;
	char path[64];
	int fd;

	make_path(path);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(reef_address_parse_unix(path, &address), 0);
	assert_int_equal(reef_socket_listen(&address, NULL), -EADDRINUSE);
	assert_int_equal(lstat(path, &status), 0);
	assert_true(S_ISREG(status.st_mode));
	remove_path(path);
}

static void socket_unlisten_spares_successor(void **state)
{
	struct reef_address address;
	char path[64];
	int old, next;

	make_path(path);
	assert_int_equal(reef_address_parse_unix(path, &address), 0);
	old = reef_socket_listen(&address, NULL);
	unlink(path);
	next = reef_socket_listen(&address, NULL);
	assert_true(old >= 0 && next >= 0);
	reef_socket_unlisten(old);
	/* It asked whether anybody is there; that connection is closed. */
	close(reef_socket_accept(next));
	exchange(next, &address);
	reef_socket_unlisten(next);
	remove_path(path);
}

static void socket_abstract_name_works(void **state)
{
	struct reef_address address;
	char name[64];
	int listener;

	snprintf(name, sizeof(name), "@reef-test-%d", (int)getpid());
	assert_int_equal(reef_address_parse_unix(name, &address), 0);
	listener = reef_socket_listen(&address, NULL);
	assert_true(listener >= 0);
	exchange(listener, &address);
	reef_socket_unlisten(listener);
	assert_int_equal(connect_fully(&address), -ECONNREFUSED);
}

/* A forked child may have the descriptor, too: nobody listens all the same. */
static void socket_unlisten_ends_copies(void **state)
{
	struct reef_address address;
	int listener, copy;
	char name[64];

	snprintf(name, sizeof(name), "@reef-copy-%d", (int)getpid());
	for (int i = 0; i < 2; i++) {
		assert_int_equal(
			i ? reef_address_parse_unix(name, &address)
			  : reef_address_parse_inet("127.0.0.1:0", &address),
			0);
		listener = reef_socket_listen(&address, &address);
		assert_true(listener >= 0);
		copy = dup(listener);
		assert_true(copy >= 0);
		reef_socket_unlisten(listener);
		assert_int_equal(connect_fully(&address), -ECONNREFUSED);
		close(copy);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(socket_inet_address_round_trip),
		cmocka_unit_test(socket_inet_nonsense_refused),
		cmocka_unit_test(socket_unix_address_round_trip),
		cmocka_unit_test(socket_loopback_addresses_known),
		cmocka_unit_test(socket_tcp_real_port_reported),
		cmocka_unit_test(socket_unix_file_private_and_removed),
		cmocka_unit_test(socket_unix_stale_file_replaced),
		cmocka_unit_test(socket_unix_other_file_left_alone),
		cmocka_unit_test(socket_unlisten_spares_successor),
		cmocka_unit_test(socket_abstract_name_works),
		cmocka_unit_test(socket_unlisten_ends_copies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
