/* image.c - see image.h. */
#include "cmd/image.h"

#include "base/clock.h"
#include "base/fiber/sched.h"
#include "base/units.h"
#include "cmd/operate.h"
#include "cmd/print/table.h"

#include <errno.h>
#include <reef/error.h>
#include <reef/reef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MILLISECOND UINT64_C(1000000)
#define BAR_WIDTH 40
#define BAR_AFTER_NS (300 * MILLISECOND)
#define BAR_EVERY_NS (100 * MILLISECOND)

/* --- the bar --- */

static uint64_t now_ns(void)
{
	return reef_local_clock_now_ns(&reef_local_clock_real);
}

int cmd_bar_draw(void *context, uint64_t done, uint64_t all)
{
	static const char full[BAR_WIDTH + 1] =
		"########################################";
	struct cmd_bar *bar = context;
	uint64_t now = now_ns();
	char size[16];
	int filled;

	if (!bar->began_ns)
		bar->began_ns = now;
	if (!all || now - bar->began_ns < BAR_AFTER_NS ||
	    now - bar->drawn_ns < BAR_EVERY_NS || !isatty(STDERR_FILENO))
		return 0;
	bar->drawn_ns = now;
	filled = (int)(done * BAR_WIDTH / all);
	fprintf(stderr, "\r%s [%-*.*s] %3d%% of %s", bar->what, BAR_WIDTH,
		filled, full, (int)(done * 100 / all),
		reef_table_bytes(all, size));
	fflush(stderr);
	return 0;
}

void cmd_bar_end(struct cmd_bar *bar)
{
	if (bar->drawn_ns)
		fprintf(stderr, "\r\033[K");
	*bar = (struct cmd_bar){.what = bar->what};
}

/* --- save --- */

/* "0.4 s a GiB" says more than a rate does. */
static void print_time(uint64_t took_ns, uint64_t bytes)
{
	double seconds = (double)took_ns / 1e9;
	double gib = (double)bytes / (1 << 30);

	printf("%.2f s", seconds);
	if (bytes >= 1 << 20)
		printf(", %.2f s a GiB", seconds / gib);
}

/* Tell what is missing by asking for the space alone. */
static int missing_for_save(struct reef *reef, const char *space,
			    const char *path)
{
	struct reef_space *probe;
	int rc = reef_space_open(reef, space, NULL, &probe);

	if (rc == -ENOENT)
		return operate_say("space", "there is no space \"%.80s\"",
				   space);
	if (!rc)
		reef_space_close(probe);
	return operate_say("space", "there is no folder for %.200s", path);
}

static int save_failed(struct reef *reef, const char *space, const char *path,
		       int rc)
{
	switch (rc) {
	case -ENOENT:
		return missing_for_save(reef, space, path);
	case -ENOSPC:
		/* Saving takes no memory of the pool. */
		return operate_say("space", "%.200s: %s; nothing was saved",
				   path, reef_error_text(rc));
	case -EINVAL:
		return operate_say("space",
				   "\"%.80s\" is no name of a space, or "
				   "\"%.200s\" not that of a file (EINVAL)",
				   space, path);
	case -EBUSY:
		return operate_say("space",
				   "%.80s: another save is under way, or a "
				   "program that uses it does not let go; "
				   "nothing was saved (EBUSY)",
				   space);
	case -REEF_ELOST:
		return operate_say("space",
				   "%.80s: some of its memory is lost, so "
				   "there is nothing whole to save (ELOST)",
				   space);
	case -ESTALE:
	case -ETIMEDOUT:
		return operate_say("space",
				   "%.80s: it was opened to others before all "
				   "was copied; nothing was saved, try again",
				   space);
	default:
		return operate_failed("space", space, rc);
	}
}

static int save_once(const char *space, const char *path)
{
	struct cmd_bar bar = {.what = "saves"};
	const struct reef_image_options options = {.progress = cmd_bar_draw,
						   .context = &bar};
	struct reef_image_report report;
	uint64_t began_ns;
	struct reef *reef;
	char size[16];
	int rc = operate_open("space", operate_settings(), "reef space save",
			      &reef);

	if (rc >= 0)
		return rc;
	began_ns = now_ns();
	rc = reef_space_save(reef, space, path, &options, &report);
	cmd_bar_end(&bar);
	if (!rc) {
		printf("saved %s: %s in %u extent%s, %u name%s (", report.name,
		       reef_table_bytes(report.bytes, size), report.extents,
		       report.extents == 1 ? "" : "s", report.names,
		       report.names == 1 ? "" : "s");
		print_time(now_ns() - began_ns, report.bytes);
		printf("); others waited for %.1f ms\n",
		       (double)report.pause_ns / 1e6);
		fflush(stdout);
	}
	if (rc)
		rc = save_failed(reef, space, path, rc);
	reef_close(reef);
	return rc;
}

int cmd_space_save(struct reef_operator *op, const char *const *arguments,
		   uint32_t count)
{
	uint64_t every_ns = 0, began_ns, took_ns;

	if (count > 2 &&
	    (reef_duration_parse(arguments[2], &every_ns) || !every_ns))
		return cmd_usage_error("space",
				       "\"%.40s\" is not a duration, as 30s or "
				       "10min",
				       arguments[2]);
	if (!every_ns)
		return save_once(arguments[0], arguments[1]);
	/* A round that fails is said, and followed by the next: a pool that is
	 * away comes back. */
	for (;;) {
		began_ns = now_ns();
		(void)save_once(arguments[0], arguments[1]);
		took_ns = now_ns() - began_ns;
		if (took_ns < every_ns)
			reef_sleep(every_ns - took_ns);
	}
}

/* --- restore --- */

static int restore_failed(const char *path, int rc)
{
	switch (rc) {
	case -ENOENT:
		return operate_say("space", "there is no file %.200s", path);
	case -EINVAL:
		return operate_say("space",
				   "%.200s: is no image of a space, or of a "
				   "revocable one, which has one copy",
				   path);
	case -EPERM:
		return operate_say("space", "only the pool's owner may restore "
					    "a space (EPERM)");
	case -EEXIST:
		return operate_say("space",
				   "%.200s: there is a space of that name, or "
				   "one whose memory has the same numbers: the "
				   "one that was saved, if it is still there "
				   "(EEXIST)",
				   path);
	case -EBUSY:
		return operate_say("space",
				   "%.200s: a session that used the space when "
				   "it was saved, or one that took its place, "
				   "is still alive; `reef session list` shows "
				   "them (EBUSY)",
				   path);
	case -REEF_EVERSION:
		return operate_say("space",
				   "%.200s: an image of another version, or "
				   "damaged; nothing was changed",
				   path);
	case -REEF_ECORRUPT:
		return operate_say("space",
				   "%.200s: no image, or damaged; nothing was "
				   "changed",
				   path);
	default:
		return operate_failed("space", path, rc);
	}
}

int cmd_space_restore(const char *const *arguments, uint32_t count,
		      uint8_t copies)
{
	struct cmd_bar bar = {.what = "restores"};
	const struct reef_image_options options = {
		.progress = cmd_bar_draw, .context = &bar, .copies = copies};
	struct reef_image_report report;
	uint64_t began_ns;
	struct reef *reef;
	char size[16];
	int rc = operate_open("space", operate_settings(), "reef space restore",
			      &reef);

	if (rc >= 0)
		return rc;
	began_ns = now_ns();
	rc = reef_space_restore(reef, arguments[0],
				count > 1 ? arguments[1] : NULL, &options,
				&report);
	cmd_bar_end(&bar);
	if (!rc) {
		printf("restored %s: %s in %u extent%s, %u name%s (",
		       report.name, reef_table_bytes(report.bytes, size),
		       report.extents, report.extents == 1 ? "" : "s",
		       report.names, report.names == 1 ? "" : "s");
		print_time(now_ns() - began_ns, report.bytes);
		printf(")\n");
	}
	reef_close(reef);
	return rc ? restore_failed(arguments[0], rc) : 0;
}
