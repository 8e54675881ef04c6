/* top.c - `reef top`: what `reef status` shows, in a terminal, once a second.
 *
 * (1) Whatever ends it (q, a signal, a terminal that is gone), the terminal is
 *     as it was before.
 * (2) A broker that is away does not end it: what it last told stays on the
 *     screen, with the reason above it, and the link is tried every second.
 * (3) No text of the pool can do anything to the terminal: control characters
 *     are shown as '?'. */
#include "cmd/operate.h"
#include "cmd/serve/child.h"
#include "cmd/view.h"

#include <errno.h>
#include <poll.h>
#include <reef/error.h>
#include <reef/fiber.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define SECOND 1000000000ull
/* Lines of a section beside its rows: what it is, titles, a rule. */
#define SECTION_LINES 3
/* Lines of the screen that belong to no section: the pool, the keys. */
#define OTHER_LINES 2
#define ROWS_LEAST 1

static const char usage[] =
	"usage: reef top [OPTIONS]\n\n"
	"Shows nodes, spaces and sessions of a pool in a terminal, once a "
	"second. Keys:\n\n"
	"  1 2 3, Tab     choose nodes, spaces or sessions: that table gets "
	"the room\n"
	"  < >            sort it by the column to the left, to the right\n"
	"  r              sort the other way round\n"
	"  up, down       move through its rows\n"
	"  q              quit\n";

static const char keys_line[] =
	"1 2 3 table   < > column   r other way round   up down   q quit";

struct order {
	uint32_t column, first; /* first row that is shown */
	bool falling;
};

struct top {
	const struct reef_settings *settings;
	struct reef_operator *op; /* NULL: there is no link */
	int error;		  /* why what is shown is old; 0: it is not */
	struct reef_answer answer;
	struct view views[VIEW_SECTIONS];
	struct order orders[VIEW_SECTIONS];
	enum view_section chosen;
	uint32_t lines, width; /* of the terminal */
};

/* --- what is shown --- */

static void forget_picture(struct reef_answer *answer, struct view *views)
{
	reef_answer_free(answer);
	for (uint32_t i = 0; i < VIEW_SECTIONS; i++)
		view_fini(&views[i]);
}

/* Ask for a whole picture; the one before stays if that fails. */
static int ask_for_picture(struct top *top)
{
	struct view views[VIEW_SECTIONS] = {0};
	struct reef_answer answer = {0};
	int rc = 0;

	if (!top->op)
		rc = operate_connect_quietly(top->settings, 0, &top->op);
	if (!rc)
		rc = reef_operator_call(top->op, REEF_POOL_STATUS, NULL,
					&answer);
	for (uint32_t i = 0; !rc && i < VIEW_SECTIONS; i++)
		rc = view_fill(top->op, (enum view_section)i, &views[i]);
	if (rc) {
		forget_picture(&answer, views);
		return rc;
	}
	forget_picture(&top->answer, top->views);
	top->answer = answer;
	memcpy(top->views, views, sizeof(views));
	return 0;
}

static void refresh(struct top *top)
{
	top->error = ask_for_picture(top);
	if (!top->error)
		return;
	reef_operator_close(top->op);
	top->op = NULL;
}

static void print_section(struct top *top, enum view_section section,
			  uint32_t rows_max, FILE *out)
{
	struct reef_table *table = top->views[section].table;
	struct order *order = &top->orders[section];
	const char *title = reef_table_title(table, order->column);
	uint32_t rows = reef_table_rows(table);

	if (order->first + rows_max > rows)
		order->first = rows > rows_max ? rows - rows_max : 0;
	fprintf(out, "%c %s: %u, by %s%s\n", section == top->chosen ? '>' : ' ',
		view_title(section), rows, title ? title : "-",
		order->falling ? ", falling" : "");
	reef_table_sort(table, order->column, order->falling);
	reef_table_print_part(table, out, order->first, rows_max);
}

/* Print all of it. The chosen table has what the others leave, and the events
 * what that one leaves. */
static void print_picture(struct top *top, FILE *out)
{
	const uint32_t fixed = OTHER_LINES + VIEW_SECTIONS * SECTION_LINES;
	uint32_t left = top->lines > fixed ? top->lines - fixed : 0;
	const uint32_t share = left / 4 > ROWS_LEAST ? left / 4 : ROWS_LEAST;
	uint32_t most[VIEW_SECTIONS], rows, i;

	for (i = 0; i < VIEW_SECTIONS; i++) {
		rows = reef_table_rows(top->views[i].table);
		most[i] = rows < share ? rows : share;
		if (i != top->chosen)
			left -= most[i] < left ? most[i] : left;
	}
	rows = reef_table_rows(top->views[top->chosen].table);
	most[top->chosen] = rows < left ? rows : left;
	left -= most[top->chosen];
	if (top->error)
		fprintf(out, "%s (%s); this is what it said last\n",
			reef_error_text(top->error),
			reef_error_name(top->error));
	else
		view_print_pool(top->op, &top->answer.body.reply.status, out);
	for (i = 0; i < VIEW_SECTIONS; i++)
		print_section(top, (enum view_section)i, most[i], out);
	if (left > 1) {
		fprintf(out, "  events\n");
		view_print_events(&top->answer, left - 1, out);
	}
}

/* --- the terminal --- */

/* Put a line on the screen: what fits, without control characters. */
static void put_line(const char *text, size_t size, uint32_t width)
{
	uint32_t used = 0;

	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)text[i];

		used += (c & 0xc0) != 0x80;
		if (used > width)
			break;
		putchar(c < ' ' || c == 0x7f ? '?' : c);
	}
	fputs("\033[K", stdout);
}

static int draw(struct top *top)
{
	struct winsize size = {0};
	char *text = NULL, *at, *end;
	size_t length;
	FILE *out;

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	top->lines = size.ws_row ? size.ws_row : 24;
	top->width = size.ws_col ? size.ws_col : 80;
	out = open_memstream(&text, &length);
	if (!out)
		return -errno;
	print_picture(top, out);
	if (fclose(out)) {
		free(text);
		return -ENOMEM;
	}
	fputs("\033[H", stdout);
	at = text;
	for (uint32_t line = 1; line < top->lines && *at; line++) {
		end = at + strcspn(at, "\n");
		put_line(at, (size_t)(end - at), top->width);
		putchar('\n');
		at = *end ? end + 1 : end;
	}
	fputs("\033[J", stdout);
	printf("\033[%u;1H", top->lines);
	put_line(keys_line, strlen(keys_line), top->width);
	free(text);
	return fflush(stdout) ? -EIO : 0;
}

static int begin_screen(struct termios *before)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, before))
		return -errno;
	raw = *before;
	raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
	/* Nobody would put the terminal back for these two. */
	raw.c_cc[VSUSP] = raw.c_cc[VQUIT] = _POSIX_VDISABLE;
	raw.c_cc[VMIN] = 1;
	raw.c_cc[VTIME] = 0;
	if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw))
		return -errno;
	/* The other screen; no cursor. */
	fputs("\033[?1049h\033[?25l", stdout);
	return 0;
}

static void end_screen(const struct termios *before)
{
	fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	tcsetattr(STDIN_FILENO, TCSAFLUSH, before);
}

/* --- keys and signals --- */

static volatile sig_atomic_t is_over;

static void note_end(int signal)
{
	is_over = 1;
}

static void note_size(int signal)
{
	/* It only interrupts the wait; then all is drawn anew. */
}

/* Block the signals, so that they come while we wait for a key and not before;
 * threads of the link have them blocked, too. waiting: the mask for that wait.
 */
static void take_signals(sigset_t *waiting)
{
	struct sigaction action = {.sa_handler = note_end};
	sigset_t set;

	sigprocmask(SIG_SETMASK, NULL, waiting);
	child_block_signals(&set);
	sigaddset(&set, SIGWINCH);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	action.sa_handler = note_size;
	sigaction(SIGWINCH, &action, NULL);
}

static void choose_column(struct top *top, int step)
{
	struct order *order = &top->orders[top->chosen];
	uint32_t count = reef_table_columns(top->views[top->chosen].table);

	if (count)
		order->column =
			(order->column + count + (uint32_t)step) % count;
}

static void move_rows(struct top *top, bool up)
{
	struct order *order = &top->orders[top->chosen];

	if (!up)
		order->first++; /* the drawing knows where it ends */
	else if (order->first)
		order->first--;
}

/* Do what a key says. True: quit. */
static bool take_key(struct top *top, char key)
{
	switch (key) {
	case 'q':
	case 'Q':
		return true;
	case '1':
	case '2':
	case '3':
		top->chosen = (enum view_section)(key - '1');
		break;
	case '\t':
		top->chosen =
			(enum view_section)((top->chosen + 1) % VIEW_SECTIONS);
		break;
	case '<':
	case ',':
		choose_column(top, -1);
		break;
	case '>':
	case '.':
		choose_column(top, 1);
		break;
	case 'r':
		top->orders[top->chosen].falling ^= true;
		break;
	case 'k':
	case 'j':
		move_rows(top, key == 'k');
		break;
	default:
		break;
	}
	return false;
}

/* Take what was typed. An arrow is ESC [ and a letter. True: quit. */
static bool take_keys(struct top *top, const char *keys, size_t count)
{
	static const char arrows[] = "ABCD", meant[] = "kj><";
	const char *arrow;

	for (size_t i = 0; i < count; i++) {
		char key = keys[i];

		if (key == '\033' && i + 2 < count && keys[i + 1] == '[') {
			arrow = strchr(arrows, keys[i + 2]);
			key = arrow && *arrow ? meant[arrow - arrows] : '\0';
			i += 2;
		}
		if (take_key(top, key))
			return true;
	}
	return false;
}

/* Wait for keys, a signal, or the moment. 0, 1: quit, or -errno. */
static int wait_for_keys(struct top *top, uint64_t until_ns,
			 const sigset_t *waiting)
{
	struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
	uint64_t now_ns = reef_now_ns();
	uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
	const struct timespec left = {.tv_sec = (time_t)(left_ns / SECOND),
				      .tv_nsec = (long)(left_ns % SECOND)};
	char keys[64];
	ssize_t got;

	if (ppoll(&fd, 1, &left, waiting) < 0 && errno != EINTR)
		return -errno;
	if (is_over)
		return 1;
	if (!fd.revents)
		return 0;
	got = read(STDIN_FILENO, keys, sizeof(keys));
	if (got < 0)
		return errno == EINTR || errno == EAGAIN ? 0 : 1;
	return got == 0 || take_keys(top, keys, (size_t)got);
}

static int run_top(struct top *top, const sigset_t *waiting)
{
	uint64_t next_ns = 0;
	int rc = 0;

	while (!rc) {
		if (reef_now_ns() >= next_ns) {
			refresh(top);
			next_ns = reef_now_ns() + SECOND;
		}
		rc = draw(top);
		if (!rc)
			rc = wait_for_keys(top, next_ns, waiting);
	}
	return rc < 0 ? rc : 0;
}

static int open_and_run(const struct reef_settings *settings)
{
	struct top top = {
		.settings = settings,
		.orders = {[VIEW_SPACES] = {.column = 4, .falling = true},
			   [VIEW_SESSIONS] = {.column = 6, .falling = true}},
		.chosen = VIEW_SESSIONS,
	};
	struct termios before;
	sigset_t waiting;
	int rc;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return operate_say("top", "this needs a terminal; `reef status "
					  "--watch` does not");
	take_signals(&waiting);
	/* What is wrong from the start is said, and not tried again. */
	rc = operate_connect("top", settings, &top.op);
	if (rc >= 0)
		return rc;
	rc = begin_screen(&before);
	if (!rc) {
		rc = run_top(&top, &waiting);
		end_screen(&before);
	}
	forget_picture(&top.answer, top.views);
	reef_operator_close(top.op);
	return rc ? operate_failed("top", "the terminal", rc) : 0;
}

int cmd_top(int argc, char **argv)
{
	const struct reef_config_input input = {
		.argc = argc,
		.argv = argv,
		.uses = REEF_USE_CLIENT,
	};
	struct reef_settings settings;
	int rc;

	rc = cmd_settings(&input, usage, &settings);
	if (rc >= 0)
		return rc;
	if (reef_config_rest_count(settings.config))
		rc = cmd_usage_error(argv[0], "unexpected argument \"%s\"",
				     reef_config_rest(settings.config, 0));
	else
		rc = open_and_run(&settings);
	reef_settings_fini(&settings);
	return rc;
}
