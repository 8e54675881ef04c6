/* hold.c - see hold.h. */
#include "cmd/object/hold.h"

#include "base/units.h"
#include "pool/client/client.h"

#include <errno.h>
#include <poll.h>
#include <reef/error.h>
#include <reef/fiber.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK_MS 50 /* how often it is checked that the lock is still held */
#define GRACE_NS UINT64_C(5000000000)
#define SPACE "sync"

static const int forwarded[] = {SIGINT,	 SIGTERM, SIGHUP,
				SIGQUIT, SIGUSR1, SIGUSR2};

int hold_begin(struct hold *hold, const char *name)
{
	sigset_t set;
	int rc;

	memset(hold, 0, sizeof(*hold));
	hold->name = name;
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
		sigaddset(&set, forwarded[i]);
	sigaddset(&set, SIGCHLD);
	rc = pthread_sigmask(SIG_BLOCK, &set, &hold->before);
	if (rc)
		return -rc;
	hold->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	hold->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (hold->signal_fd >= 0 && hold->stop_fd >= 0)
		return 0;
	rc = -errno;
	hold_end(hold);
	return rc;
}

void hold_end(struct hold *hold)
{
	if (hold->signal_fd >= 0)
		close(hold->signal_fd);
	if (hold->stop_fd >= 0)
		close(hold->stop_fd);
	pthread_sigmask(SIG_SETMASK, &hold->before, NULL);
}

/* The next signal, if one waits; 0: none. */
static int next_signal(struct hold *hold, struct signalfd_siginfo *info)
{
	ssize_t size = read(hold->signal_fd, info, sizeof(*info));

	return size == (ssize_t)sizeof(*info) ? (int)info->ssi_signo : 0;
}

/* --- while waiting --- */

static void *watch_signals(void *arg)
{
	struct hold *hold = arg;
	struct signalfd_siginfo info;
	struct pollfd fds[] = {{.fd = hold->signal_fd, .events = POLLIN},
			       {.fd = hold->stop_fd, .events = POLLIN}};
	int number;

	for (;;) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return NULL;
		if (fds[1].revents)
			return NULL;
		number = next_signal(hold, &info);
		if (!number || number == SIGCHLD)
			continue;
		atomic_store(&hold->signal, number);
		hold->cancel(hold->what);
		return NULL;
	}
}

int hold_wait_begin(struct hold *hold, void (*cancel)(void *what), void *what)
{
	hold->cancel = cancel;
	hold->what = what;
	return -pthread_create(&hold->thread, NULL, watch_signals, hold);
}

int hold_wait_end(struct hold *hold)
{
	uint64_t one = 1;

	/* This does not fail: an eventfd has room for it. */
	if (write(hold->stop_fd, &one, sizeof(one)) < 0)
		return SIGTERM;
	pthread_join(hold->thread, NULL);
	return atomic_load(&hold->signal);
}

/* --- the command --- */

/* Become the command, in the forked child: nothing here may allocate or lock,
 * for another thread may have held a lock when we forked. */
static void exec_command(const struct hold *hold,
			 const struct hold_command *command, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(HOLD_LOST);
	sigprocmask(SIG_SETMASK, &hold->before, NULL);
	execvp(command->words[0], (char *const *)command->words);
	_exit(errno == ENOENT ? HOLD_NOT_FOUND : HOLD_CANNOT_RUN);
}

static int status_of(const struct hold *hold,
		     const struct hold_command *command, int status)
{
	int code;

	if (WIFSIGNALED(status))
		return 128 + WTERMSIG(status);
	code = WEXITSTATUS(status);
	if (code == HOLD_NOT_FOUND || code == HOLD_CANNOT_RUN)
		operate_say(
			hold->name, "\"%.80s\": %s", command->words[0],
			code == HOLD_NOT_FOUND
				? "not found, or it ended with status 127"
				: "cannot be run, or it ended with status 126");
	return code;
}

/* Pass the signals that came on to the command, but not those of a terminal,
 * which sends them to the command, too. */
static void forward_signals(struct hold *hold, pid_t child)
{
	struct signalfd_siginfo info;
	int number;

	while ((number = next_signal(hold, &info)) != 0)
		if (number != SIGCHLD && info.ssi_code != SI_KERNEL)
			kill(child, number);
}

int hold_run(struct hold *hold, const struct hold_command *command)
{
	struct pollfd fd = {.fd = hold->signal_fd, .events = POLLIN};
	uint64_t kill_ns = UINT64_MAX;
	bool is_lost = false;
	int status;
	pid_t parent = getpid(), child, ended;

	fflush(NULL);
	child = fork();
	if (child < 0) {
		operate_failed(hold->name, "fork", -errno);
		return HOLD_FAILED;
	}
	if (child == 0)
		exec_command(hold, command, parent);
	while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
		poll(&fd, 1, CHECK_MS);
		forward_signals(hold, child);
		if (!is_lost && command->is_lost(command->context)) {
			is_lost = true;
			operate_say(hold->name,
				    "%s is lost: the command is being ended",
				    command->what);
			kill(child, SIGTERM);
			kill(child, SIGCONT);
			kill_ns = reef_now_ns() + command->grace_ns;
		}
		if (reef_now_ns() >= kill_ns) {
			kill(child, SIGKILL);
			kill_ns = UINT64_MAX;
		}
	}
	if (ended < 0)
		return HOLD_FAILED;
	return is_lost ? HOLD_LOST : status_of(hold, command, status);
}

int hold_failed(const char *name, const char *object, int rc)
{
	if (rc == -EEXIST)
		return operate_say(name,
				   "%.80s: something else in the space has "
				   "that name",
				   object);
	return operate_failed(name, object, rc);
}

/* --- flags --- */

static int parse_options(const char *name, struct hold_options *options)
{
	char *end;
	long number;

	options->timeout_ns = REEF_FOREVER;
	options->grace_ns = GRACE_NS;
	options->busy_status = HOLD_BUSY;
	if (options->timeout &&
	    reef_duration_parse(options->timeout, &options->timeout_ns))
		return cmd_usage_error(
			name, "--timeout: \"%.40s\" is not a time, as 10s",
			options->timeout);
	if (options->grace &&
	    reef_duration_parse(options->grace, &options->grace_ns))
		return cmd_usage_error(
			name, "--grace: \"%.40s\" is not a time, as 10s",
			options->grace);
	if (options->no_wait)
		options->timeout_ns = 0;
	if (options->exit_code) {
		number = strtol(options->exit_code, &end, 10);
		if (end == options->exit_code || *end || number < 0 ||
		    number > 255)
			return cmd_usage_error(
				name, "--exit-code: \"%.40s\" is not 0 to 255",
				options->exit_code);
		options->busy_status = (int)number;
	}
	return -1;
}

/* Split the arguments: the first is *name (NULL: none), the others are returned
 * as the words of the command, with NULL at the end. The caller frees the
 * array; the texts are the settings'. */
static const char **read_words(const struct reef_settings *settings,
			       const char **name)
{
	uint32_t count = reef_config_rest_count(settings->config);
	const char **words = calloc(count + 1, sizeof(*words));

	if (!words)
		return NULL;
	*name = count ? reef_config_rest(settings->config, 0) : NULL;
	for (uint32_t i = 1; i < count; i++)
		words[i - 1] = reef_config_rest(settings->config, i);
	return words;
}

/* Open the space. -1: go on; otherwise the exit status, and an error was
 * printed. */
static int open_space(const char *name, struct reef *reef,
		      const struct hold_options *options,
		      struct reef_space **out)
{
	const bool make = options->make;
	const struct reef_space_options flags = {
		.flags = make ? REEF_SPACE_CREATE : 0};
	const char *space = options->space ? options->space : SPACE;
	int rc = reef_space_open(reef, space, &flags, out);

	if (rc == -ENOENT) {
		operate_say(name, "there is no space \"%.80s\"", space);
		return 1;
	}
	/* Whom it belongs to could break what is held there. */
	if (!rc && !options->space && !reef_space_is_own(*out)) {
		reef_space_close(*out);
		rc = -EPERM;
	}
	if ((rc == -EPERM || rc == -EACCES) && !options->space)
		operate_say(name, "the space \"" SPACE "\" belongs to another "
				  "user; see --space");
	else if (rc)
		operate_failed(name, space, rc);
	if (rc)
		return make ? HOLD_FAILED : 1;
	return -1;
}

struct names {
	char **texts;
	size_t count, room;
};

static int keep_name(void *context, const char *name, uint64_t value,
		     uint64_t generation)
{
	struct names *names = context;
	char **grown;

	if (names->count == names->room) {
		names->room = names->room ? 2 * names->room : 64;
		grown = realloc(names->texts, names->room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		names->texts = grown;
	}
	names->texts[names->count] = strdup(name);
	return names->texts[names->count] ? (names->count++, 0) : -ENOMEM;
}

int hold_each_name(struct reef_space *space,
		   int (*each)(void *context, const char *name), void *context)
{
	struct names names = {0};
	int rc = reef_name_list(space, "", keep_name, &names);

	for (size_t i = 0; !rc && i < names.count; i++)
		rc = each(context, names.texts[i]);
	for (size_t i = 0; i < names.count; i++)
		free(names.texts[i]);
	free(names.texts);
	return rc;
}

static int open_and_act(const struct hold_verb *verb,
			const struct reef_settings *settings,
			const struct hold_options *options)
{
	struct reef_space *space;
	struct reef *reef;
	struct hold hold;
	int rc = hold_begin(&hold, verb->name);

	if (rc)
		return operate_failed(verb->name, "signals", rc);
	rc = operate_open(verb->name, settings, NULL, &reef);
	if (rc >= 0) {
		hold_end(&hold);
		return options->words ? HOLD_FAILED : rc;
	}
	rc = open_space(verb->name, reef, options, &space);
	if (rc < 0)
		rc = verb->act(&hold, reef, space, options);
	reef_close(reef);
	hold_end(&hold);
	return rc;
}

int hold_main(const struct hold_verb *verb, int argc, char **argv,
	      const struct reef_config_flag *flags,
	      struct hold_options *options)
{
	const struct reef_config_input input = {.argc = argc,
						.argv = argv,
						.uses = REEF_USE_CLIENT,
						.flags = flags};
	struct reef_settings settings;
	const char **words;
	int rc;

	rc = cmd_settings(&input, verb->usage, &settings);
	if (rc >= 0)
		return rc;
	words = read_words(&settings, &options->name);
	if (words && words[0])
		options->words = words;
	options->make = options->words != NULL;
	rc = words ? parse_options(verb->name, options) : 1;
	if (rc < 0)
		rc = verb->check(options);
	if (rc < 0 && (options->make || options->drop) &&
	    operate_is_own_name(options->name))
		rc = operate_refuse_own_name(verb->name, options->name);
	if (rc < 0)
		rc = open_and_act(verb, &settings, options);
	free(words);
	reef_settings_fini(&settings);
	return rc;
}
