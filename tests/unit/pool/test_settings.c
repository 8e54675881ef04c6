/* test_settings.c - the table that broker, node and client share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool/settings.h"
#include "pool/target.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char *const environment[] = {"HOME=/h", "XDG_STATE_HOME=/state",
				    "XDG_RUNTIME_DIR=/run/user/1", NULL};

static int load(uint32_t uses, char **argv, struct reef_settings *settings)
{
	struct reef_config_input input = {
		.argv = argv,
		.uses = uses,
		.environment = environment,
		.system_file = "/nonexistent/reef.conf",
	};

	while (argv[input.argc])
		input.argc++;
	return reef_settings_load(&input, settings);
}

#define ARGUMENTS(...) ((char *[]){"test", __VA_ARGS__, NULL})
#define EVERYBODY (REEF_USE_BROKER | REEF_USE_NODE | REEF_USE_CLIENT)

static void refused_for(uint32_t uses, char **argv, const char *error)
{
	struct reef_settings settings;

	assert_int_equal(load(uses, argv, &settings), -EINVAL);
	assert_string_equal(reef_config_error(settings.config), error);
	reef_settings_fini(&settings);
}

static void refused(char **argv, const char *error)
{
	refused_for(EVERYBODY, argv, error);
}

static void settings_defaults_follow_from_the_machine(void **state)
{
	struct reef_settings s;

	assert_int_equal(load(EVERYBODY, ARGUMENTS("x"), &s), 0);
	assert_string_equal(s.data, "/state/reef");
	assert_string_equal(s.run, "/run/user/1/reef");
	assert_string_equal(s.key_file, "/state/reef/pool.key");
	assert_string_equal(s.node_key, "/state/reef/node.key");
	assert_string_equal(s.listen, "tcp:127.0.0.1:7337");
	assert_string_equal(s.node_listen, "tcp:127.0.0.1:7338");
	assert_null(s.broker);
	assert_null(s.pool);
	assert_null(s.credential);
	assert_null(s.fabrics);
	assert_false(s.lease_kills);
	assert_true(strlen(s.name) > 0);
	assert_int_equal(s.lend, 1 << 30);
	assert_int_equal(s.extent_size, 64 << 20);
	assert_int_equal(s.huge_pages, REEF_HUGE_AUTO);
	assert_int_equal(s.ttl_ns, 10000000000);
	assert_int_equal(s.revoke_notice_ns, 1000000000);
	assert_int_equal(s.spin_ns, 20000);
	assert_int_equal(s.silence_ns, 0);
	assert_int_equal(s.unread, 256 << 20);
	assert_int_equal(s.log, REEF_LOG_WARNING);
	assert_true(s.pressure_low > 0 && s.pressure_low < s.pressure_high);
	assert_true(s.with_redis);
	assert_string_equal(s.redis.listen, "127.0.0.1:7379");
	assert_string_equal(s.redis.unix_path, "/run/user/1/reef/redis.sock");
	assert_string_equal(s.redis.space, "redis");
	assert_int_equal(s.redis.copies, 1);
	assert_null(s.redis.password_file);
	assert_int_equal(s.redis.databases, 16);
	assert_int_equal(s.redis.clients_max, 10000);
	assert_int_equal(s.redis.idle_ns, 0);
	reef_settings_fini(&s);
}

static void settings_of_the_redis_door_are_checked(void **state)
{
	const uint32_t uses = REEF_USE_CLIENT | REEF_USE_REDIS;
	struct reef_settings s;

	assert_int_equal(load(uses,
			      ARGUMENTS("--redis-listen", "none",
					"--redis-unix=/u", "--redis-idle=3s"),
			      &s),
			 0);
	assert_null(s.redis.listen);
	assert_string_equal(s.redis.unix_path, "/u");
	assert_int_equal(s.redis.idle_ns, 3000000000);
	reef_settings_fini(&s);
	assert_int_equal(load(uses, ARGUMENTS("--redis-listen", "host"), &s),
			 -EINVAL);
	assert_non_null(strstr(reef_config_error(s.config),
			       "neither HOST:PORT nor none"));
	reef_settings_fini(&s);
	assert_int_equal(load(uses,
			      ARGUMENTS("--redis-output-soft=2G",
					"--redis-output-max=1G"),
			      &s),
			 -EINVAL);
	assert_non_null(strstr(reef_config_error(s.config),
			       "is more than redis-output-max = 1G"));
	reef_settings_fini(&s);
	/* Nobody else has them as flags. */
	assert_int_equal(load(EVERYBODY, ARGUMENTS("--redis-idle=3s"), &s),
			 -EINVAL);
	reef_settings_fini(&s);
}

static void settings_directories_move_what_is_in_them(void **state)
{
	struct reef_settings s;

	assert_int_equal(load(EVERYBODY,
			      ARGUMENTS("--run=/r", "--data", "~/d",
					"--broker=tcp:far:1"),
			      &s),
			 0);
	assert_string_equal(s.key_file, "/h/d/pool.key");
	assert_string_equal(s.node_key, "/h/d/node.key");
	assert_string_equal(s.run, "/r");
	assert_string_equal(s.broker, "tcp:far:1");
	reef_settings_fini(&s);
}

static void settings_addresses_are_checked(void **state)
{
	struct reef_settings s;

	assert_int_equal(
		load(EVERYBODY,
		     ARGUMENTS("--listen=tcp:[::1]:7337, tcp:host.name:0, "
			       "verbs:10.0.0.1:65535, shm:@x, shm:/a, tcp::1"),
		     &s),
		0);
	assert_int_equal(reef_config_count(s.config, REEF_SET_LISTEN), 6);
	reef_settings_fini(&s);
	refused(ARGUMENTS("--listen=udp:x:1"),
		"--listen: listen: \"udp:x:1\" does not begin with shm:, tcp: "
		"or verbs:");
	refused(ARGUMENTS("--listen=tcp:host"),
		"--listen: listen: \"tcp:host\" has no port, as in "
		"tcp:HOST:PORT");
	refused(ARGUMENTS("--listen=tcp:host:65536"),
		"--listen: listen: \"tcp:host:65536\" has no port from 0 to "
		"65535 at its end");
	refused(ARGUMENTS("--listen=tcp:host:http"),
		"--listen: listen: \"tcp:host:http\" has no port from 0 to "
		"65535 at its end");
	refused(ARGUMENTS("--listen=tcp:::1:7337"),
		"--listen: listen: \"tcp:::1:7337\" needs brackets, as in "
		"tcp:[ADDRESS]:PORT");
	refused(ARGUMENTS("--listen=tcp:[::1:7337"),
		"--listen: listen: \"tcp:[::1:7337\" has no ] before its port");
	refused(ARGUMENTS("--broker=shm:here"),
		"--broker: broker: \"shm:here\" is neither shm:/PATH nor "
		"shm:@NAME");
}

static void settings_address_without_fabric_is_of_tcp(void **state)
{
	char broker[REEF_TARGET_MAX];
	struct reef_settings s;

	assert_int_equal(
		load(EVERYBODY,
		     ARGUMENTS("--listen=127.0.0.1:7000 shm:@x,[::1]:1",
			       "--listen", ":0", "--broker=far:1",
			       "--node-listen=host.name:65535",
			       "--pool=far:2,[::1]:3"),
		     &s),
		0);
	assert_string_equal(s.listen,
			    "tcp:127.0.0.1:7000 shm:@x tcp:[::1]:1 tcp::0");
	assert_string_equal(reef_config_item(s.config, REEF_SET_LISTEN, 2),
			    "tcp:[::1]:1");
	assert_string_equal(s.broker, "tcp:far:1");
	assert_string_equal(s.node_listen, "tcp:host.name:65535");
	assert_int_equal(reef_target_broker(s.pool, NULL, broker), 0);
	assert_string_equal(broker, "tcp:far:2,tcp:[::1]:3");
	reef_settings_fini(&s);
	assert_int_equal(reef_target_broker("far", NULL, broker), -EINVAL);
	assert_int_equal(reef_target_broker("embedded:1G", NULL, broker),
			 -EINVAL);
	refused(ARGUMENTS("--listen=host"),
		"--listen: listen: \"host\" has no port, as in HOST:PORT");
	refused(ARGUMENTS("--listen=host:65536"),
		"--listen: listen: \"host:65536\" has no port from 0 to 65535 "
		"at its end");
	refused(ARGUMENTS("--broker=[::1]"),
		"--broker: broker: \"[::1]\" has no ] before its port");
}

static void settings_socket_too_long_is_refused(void **state)
{
	struct reef_settings settings;
	char run[160] = "--run=/";

	memset(run + 7, 'x', 120);
	run[127] = '\0';
	assert_int_equal(load(EVERYBODY, ARGUMENTS(run), &settings), -EINVAL);
	assert_non_null(strstr(reef_config_error(settings.config),
			       "is too long for a socket"));
	reef_settings_fini(&settings);
}

static void settings_that_do_not_go_together_are_refused(void **state)
{
	refused(ARGUMENTS("--lend=32M"),
		"--lend: lend is less than one extent (extent-size = 64M)");
	refused(ARGUMENTS("--extent-size=1.5M"),
		"--extent-size: extent-size is not whole MiB");
	refused(ARGUMENTS("--pressure-low=2G", "--pressure-high=1G"),
		"--pressure-low: pressure-low is more than pressure-high = 1G");
}

static void settings_one_watermark_moves_the_other(void **state)
{
	struct reef_settings s;

	assert_int_equal(load(EVERYBODY, ARGUMENTS("--pressure-low=100T"), &s),
			 0);
	assert_true(s.pressure_high == s.pressure_low);
	reef_settings_fini(&s);
	assert_int_equal(load(EVERYBODY, ARGUMENTS("--pressure-high=0"), &s),
			 0);
	assert_int_equal(s.pressure_low, 0);
	reef_settings_fini(&s);
}

static void settings_names_are_plain(void **state)
{
	refused_for(REEF_USE_UP, ARGUMENTS("--name=a b"),
		    "--name: name: \"a b\" has other characters than letters, "
		    "digits, . _ -");
	refused_for(
		REEF_USE_UP,
		ARGUMENTS("--name="
			  "1234567890123456789012345678901234567890123456789012"
			  "345678901234"),
		"--name: name: "
		"\"12345678901234567890123456789012345678901234567890123456789"
		"01234\" is longer than 63 characters");
}

static void settings_of_clients_are_checked(void **state)
{
	struct reef_settings s;

	assert_int_equal(
		load(REEF_USE_CLIENT,
		     ARGUMENTS("--pool=reef://a:1,b:2", "--credential=~/c",
			       "--fabrics=tcp,shm"),
		     &s),
		0);
	assert_string_equal(s.pool, "reef://a:1,b:2");
	assert_string_equal(s.credential, "/h/c");
	assert_string_equal(s.fabrics, "tcp shm");
	reef_settings_fini(&s);
	refused(ARGUMENTS("--pool=a"),
		"--pool: pool: \"a\" is neither local nor HOST:PORT nor "
		"embedded:SIZE");
	refused(ARGUMENTS("--fabrics=shm,udp"),
		"--fabrics: fabrics: \"udp\" is none of shm, tcp, verbs");
}

static void settings_flags_are_those_of_the_command(void **state)
{
	struct reef_settings s;

	assert_int_equal(load(REEF_USE_CLIENT, ARGUMENTS("--lend=2G"), &s),
			 -EINVAL);
	assert_string_equal(reef_config_error(s.config),
			    "there is no flag --lend");
	reef_settings_fini(&s);
	assert_int_equal(load(REEF_USE_NODE, ARGUMENTS("--lend=2G"), &s), 0);
	reef_settings_fini(&s);
}

static void settings_help_needs_nothing(void **state)
{
	struct reef_settings s;

	assert_int_equal(load(EVERYBODY, ARGUMENTS("--help"), &s), 0);
	assert_true(reef_config_wants_help(s.config));
	reef_settings_fini(&s);
}

/* The manual says so: REEF_ and the name in capitals. */
static void settings_variables_are_the_names(void **state)
{
	struct reef_config_input input = {.uses = EVERYBODY};
	char *text = NULL, variable[64], entry[80];
	char *const env[] = {entry, "HOME=/h", NULL};
	struct reef_settings s;
	size_t size;
	FILE *stream;

	assert_int_equal(load(EVERYBODY, ARGUMENTS("x"), &s), 0);
	stream = open_memstream(&text, &size);
	reef_config_print(s.config, stream);
	fclose(stream);
	reef_settings_fini(&s);
	input.environment = env;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		if (line[0] == '#')
			continue;
		size = strcspn(line, " ");
		for (size_t i = 0; i < size; i++)
			variable[i] =
				line[i] == '-' ? '_' : (char)toupper(line[i]);
		variable[size] = '\0';
		snprintf(entry, sizeof(entry), "REEF_%s=", variable);
		assert_int_equal(reef_settings_load(&input, &s), -EINVAL);
		assert_non_null(
			strstr(reef_config_error(s.config), "has no value"));
		reef_settings_fini(&s);
	}
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_defaults_follow_from_the_machine),
		cmocka_unit_test(settings_directories_move_what_is_in_them),
		cmocka_unit_test(settings_addresses_are_checked),
		cmocka_unit_test(settings_address_without_fabric_is_of_tcp),
		cmocka_unit_test(settings_socket_too_long_is_refused),
		cmocka_unit_test(settings_that_do_not_go_together_are_refused),
		cmocka_unit_test(settings_one_watermark_moves_the_other),
		cmocka_unit_test(settings_names_are_plain),
		cmocka_unit_test(settings_of_clients_are_checked),
		cmocka_unit_test(settings_of_the_redis_door_are_checked),
		cmocka_unit_test(settings_flags_are_those_of_the_command),
		cmocka_unit_test(settings_help_needs_nothing),
		cmocka_unit_test(settings_variables_are_the_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
