/* connection.c - the commands about the connection itself. */
#include "gateway/redis/commands/connection.h"

#include "gateway/redis/protocol/number.h"
#include "gateway/redis/server/door.h"
#include "gateway/redis/server/guess.h"

#include <limits.h>
#include <reef/fiber.h>
#include <stdlib.h>
#include <string.h>

/* The version that clients are told, by which they know what they may expect of
 * a server. */
#define REDIS_VERSION "7.0.15"

static void ping(struct redis_thread *thread, struct redis_client *client,
		 const struct redis_request *request)
{
	(void)thread;
	if (request->argc > 2)
		redis_reply_arity(client, client->command);
	else if (request->argc == 2)
		redis_reply_bulk(&client->reply, request->argv[1].bytes,
				 request->argv[1].size);
	else
		redis_reply_status(&client->reply, "PONG");
}

static void echo(struct redis_thread *thread, struct redis_client *client,
		 const struct redis_request *request)
{
	(void)thread;
	redis_reply_bulk(&client->reply, request->argv[1].bytes,
			 request->argv[1].size);
}

static void quit(struct redis_thread *thread, struct redis_client *client,
		 const struct redis_request *request)
{
	(void)thread;
	(void)request;
	redis_reply_status(&client->reply, "OK");
	client->close_after = true;
}

static void select_db(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	int64_t db;

	if (!redis_take_integer(client, &request->argv[1], &db))
		return;
	if (db < INT_MIN || db > INT_MAX)
		redis_reply_error(&client->reply,
				  "ERR value is out of range, value must "
				  "between -2147483648 and 2147483647");
	else if (db < 0 || db >= redis_door_options(thread->door)->databases)
		redis_reply_error(&client->reply,
				  "ERR DB index is out of range");
	else {
		client->db = (uint32_t)db;
		redis_reply_status(&client->reply, "OK");
	}
}

/* Close a connection that speaks HTTP: a browser was led here, and the next
 * lines of its request must not be taken for commands. */
static void refuse_http(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	(void)thread;
	(void)request;
	client->is_dead = true;
}

/* --- names --- */

const char *redis_name_fault(const struct redis_bytes *name)
{
	size_t i;

	if (name->size > REDIS_NAME_MAX)
		return "ERR Client names cannot be longer than 256 bytes.";
	for (i = 0; i < name->size; i++)
		if (name->bytes[i] < '!' || name->bytes[i] > '~')
			return "ERR Client names cannot contain spaces, "
			       "newlines or special characters.";
	return NULL;
}

bool redis_text_set(char **text, const struct redis_bytes *bytes)
{
	char *copy = NULL;

	if (bytes->size) {
		/* Not strndup: words of a request have no end of their own. */
		copy = malloc(bytes->size + 1);
		if (!copy)
			return false;
		memcpy(copy, bytes->bytes, bytes->size);
		copy[bytes->size] = '\0';
	}
	free(*text);
	*text = copy;
	return true;
}

/* --- who it is --- */

/* Wait as long as those have to who guess passwords (guess.h). False: the
 * client is gone, or was refused, and that was answered. */
static bool wait_for_guess(struct redis_thread *thread,
			   struct redis_client *client,
			   struct redis_guess *guess)
{
	struct redis_guesses *guesses = redis_door_guesses(thread->door);
	const uint64_t place = redis_guess_place(client->fd, client->is_unix);
	const uint64_t now_ns = reef_now_ns();

	if (!redis_guess_begin(guesses, place, now_ns, guess)) {
		thread->stats.auth_refused++;
		redis_reply_error(&client->reply,
				  "ERR too many wrong passwords came from "
				  "there; try again later");
		client->close_after = true;
		return false;
	}
	if (guess->until_ns <= now_ns ||
	    redis_sleep(thread, client, guess->until_ns))
		return true;
	redis_guess_end(guesses, guess, reef_now_ns(), false);
	return false;
}

static bool is_default_user(const struct redis_bytes *user)
{
	static const char name[] = "default";

	return user->size == sizeof(name) - 1 &&
	       !memcmp(user->bytes, name, sizeof(name) - 1);
}

/* Without a password every user `default` is let in, whatever it says. */
static bool authenticate(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_bytes *user,
			 const struct redis_bytes *password)
{
	struct redis_guess guess;
	bool is_default, is_right;

	if (!wait_for_guess(thread, client, &guess))
		return false;
	/* The password is compared in any case: what takes how long tells
	 * nothing. */
	is_default = is_default_user(user);
	is_right = redis_door_password(thread->door, password->bytes,
				       password->size) &
		   is_default;
	redis_guess_end(redis_door_guesses(thread->door), &guess, reef_now_ns(),
			!is_right);
	if (is_right) {
		client->is_authenticated = true;
		client->parser.is_stranger = false;
		return true;
	}
	thread->stats.auth_failed++;
	redis_reply_error(&client->reply, "WRONGPASS invalid username-password "
					  "pair or user is disabled.");
	return false;
}

static void auth(struct redis_thread *thread, struct redis_client *client,
		 const struct redis_request *request)
{
	static const struct redis_bytes user = {"default", 7};
	struct redis_door_info info;

	if (request->argc > 3) {
		redis_reply_syntax(client);
		return;
	}
	redis_door_info(thread->door, &info);
	if (request->argc == 2 && !info.has_password) {
		redis_reply_error(&client->reply,
				  "ERR AUTH <password> called without any "
				  "password configured for the default user. "
				  "Are you sure your configuration is "
				  "correct?");
		return;
	}
	if (authenticate(thread, client,
			 request->argc == 2 ? &user : &request->argv[1],
			 &request->argv[request->argc - 1]))
		redis_reply_status(&client->reply, "OK");
}

/* Do the options of HELLO one after the other, as Redis does: those before a
 * wrong one stay done. False: an error was answered. */
static bool parse_hello(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	const struct redis_bytes *argv = request->argv;
	struct redis_reply *reply = &client->reply;
	const char *fault;
	uint32_t i;

	for (i = 2; i < request->argc; i++) {
		uint32_t left = request->argc - 1 - i;

		if (redis_bytes_is(&argv[i], "auth") && left >= 2) {
			if (!authenticate(thread, client, &argv[i + 1],
					  &argv[i + 2]))
				return false;
			i += 2;
		} else if (redis_bytes_is(&argv[i], "setname") && left) {
			fault = redis_name_fault(&argv[++i]);
			if (fault) {
				redis_reply_error(reply, fault);
				return false;
			}
			redis_text_set(&client->name, &argv[i]);
		} else {
			redis_reply_errorf(
				reply,
				"ERR Syntax error in HELLO option '%.*s'",
				redis_shown(&argv[i], 512), argv[i].bytes);
			return false;
		}
	}
	return true;
}

static bool parse_protocol(struct redis_client *client,
			   const struct redis_bytes *bytes, int64_t *out)
{
	if (!redis_integer_parse(bytes->bytes, bytes->size, out))
		redis_reply_error(&client->reply,
				  "ERR Protocol version is not an integer or "
				  "out of range");
	else if (*out < 2 || *out > 3)
		redis_reply_error(&client->reply,
				  "NOPROTO unsupported protocol version");
	else
		return true;
	return false;
}

static void reply_hello(struct redis_client *client)
{
	struct redis_reply *reply = &client->reply;

	redis_reply_map(reply, 7);
	redis_reply_text(reply, "server");
	redis_reply_text(reply, "redis");
	redis_reply_text(reply, "version");
	redis_reply_text(reply, REDIS_VERSION);
	redis_reply_text(reply, "proto");
	redis_reply_integer(reply, reply->protocol);
	redis_reply_text(reply, "id");
	redis_reply_integer(reply, (int64_t)client->id);
	redis_reply_text(reply, "mode");
	redis_reply_text(reply, "standalone");
	redis_reply_text(reply, "role");
	redis_reply_text(reply, "master");
	redis_reply_text(reply, "modules");
	redis_reply_array(reply, 0);
}

static void hello(struct redis_thread *thread, struct redis_client *client,
		  const struct redis_request *request)
{
	int64_t protocol = 0; /* as it is */

	if (request->argc > 1 &&
	    !parse_protocol(client, &request->argv[1], &protocol))
		return;
	if (!parse_hello(thread, client, request))
		return;
	if (!client->is_authenticated) {
		redis_reply_error(
			&client->reply,
			"NOAUTH HELLO must be called with the client already "
			"authenticated, otherwise the HELLO <proto> AUTH "
			"<user> <pass> option can be used to authenticate the "
			"client and select the RESP protocol version at the "
			"same time");
		return;
	}
	if (protocol)
		client->reply.protocol = (uint8_t)protocol;
	reply_hello(client);
}

static void reset(struct redis_thread *thread, struct redis_client *client,
		  const struct redis_request *request)
{
	struct redis_door_info info;

	(void)request;
	redis_door_info(thread->door, &info);
	redis_transaction_reset(client);
	client->is_authenticated = !info.has_password;
	client->parser.is_stranger = info.has_password;
	client->stranger_ns = thread->now_ns;
	client->db = 0;
	client->reply.protocol = 2;
	client->no_touch = false;
	free(client->name);
	client->name = NULL;
	redis_reply_status(&client->reply, "RESET");
}

#define ALWAYS                                                                 \
	(REDIS_NOSCRIPT | REDIS_LOADING | REDIS_STALE | REDIS_FAST |           \
	 REDIS_NO_AUTH | REDIS_ALLOW_BUSY)

struct redis_command redis_connection_commands[] = {
	{.name = "auth",
	 .arity = -2,
	 .flags = ALWAYS | REDIS_LONG,
	 .run = auth},
	{.name = "echo",
	 .arity = 2,
	 .flags = REDIS_LOADING | REDIS_STALE | REDIS_FAST,
	 .run = echo},
	{.name = "hello",
	 .arity = -1,
	 .flags = ALWAYS | REDIS_LONG,
	 .run = hello},
	{.name = "host:",
	 .arity = -1,
	 .flags = REDIS_NO_AUTH | REDIS_UNQUEUED,
	 .run = refuse_http},
	{.name = "ping", .arity = -1, .flags = REDIS_FAST, .run = ping},
	{.name = "post",
	 .arity = -1,
	 .flags = REDIS_NO_AUTH | REDIS_UNQUEUED,
	 .run = refuse_http},
	{.name = "quit",
	 .arity = -1,
	 .flags = ALWAYS | REDIS_UNQUEUED,
	 .run = quit},
	{.name = "reset",
	 .arity = 1,
	 .flags = ALWAYS | REDIS_UNQUEUED,
	 .run = reset},
	{.name = "select",
	 .arity = 2,
	 .flags = REDIS_LOADING | REDIS_STALE | REDIS_FAST,
	 .run = select_db},
	{0},
};
