/* preload.c - begins, ends; what the environment says. */
#include "integrations/pages/preload.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct through_options options;
static _Atomic bool is_on;
static _Atomic uint64_t owned[OWNED_MAX / 64];

bool preload_is_on(void)
{
	return atomic_load(&is_on);
}

/* --- (3) --- */

void preload_own(int fd, bool is_own)
{
	const uint64_t bit = UINT64_C(1) << (fd % 64);

	if (fd < 0 || fd >= (int)OWNED_MAX)
		return;
	if (is_own)
		atomic_fetch_or(&owned[fd / 64], bit);
	else if (atomic_load(&owned[fd / 64]) & bit)
		atomic_fetch_and(&owned[fd / 64], ~bit);
}

bool preload_owns(int fd)
{
	return fd >= 0 && fd < (int)OWNED_MAX &&
	       atomic_load(&owned[fd / 64]) >> (fd % 64) & 1;
}

void preload_share_all(void)
{
	for (uint32_t i = 0; i < OWNED_MAX / 64; i++)
		if (atomic_load(&owned[i]))
			atomic_store(&owned[i], 0);
}

/* --- the environment --- */

static ssize_t next_pread(int fd, void *to, size_t size, off_t at)
{
	NEXT(pread64)
	return call_pread64(fd, to, size, at);
}

static void tell_difference(const char *path, uint64_t page)
{
	char text[PATH_MAX + 200];
	int size = snprintf(text, sizeof(text),
			    "reef pages: page %llu of %s is not what is on "
			    "disk: it is not cached any more\n",
			    (unsigned long long)page, path);
	NEXT(write)

	if (size > 0 && call_write(STDERR_FILENO, text, (size_t)size) < 0)
		return;
}

/* Programs whose ways to write are all known, by tests. */
static bool is_known_program(void)
{
	static const char *const names[] = {"postgres"};
	char path[PATH_MAX];
	ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
	const char *name;

	if (size <= 0)
		return false;
	path[size] = '\0';
	name = strrchr(path, '/');
	for (unsigned i = 0; name && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name + 1, names[i]))
			return true;
	return false;
}

/* Lines of a text; it is cut into them. */
static void split_directories(char *text)
{
	uint32_t count = 0;
	char *state, *line;

	for (line = strtok_r(text, "\n", &state);
	     line && count < THROUGH_DIRECTORIES_MAX;
	     line = strtok_r(NULL, "\n", &state))
		options.directories[count++] = line;
}

static const char *say(const char *variable, const char *otherwise)
{
	const char *value = getenv(variable);

	return value && *value ? strdup(value) : otherwise;
}

static void begin(void) __attribute__((constructor));
static void begin(void)
{
	const char *directories = say("REEF_PAGES_DIRECTORIES", NULL);
	const char *mode = say("REEF_PAGES_MODE", "auto");
	const char *page = say("REEF_PAGES_PAGE", "0");
	const char *size = say("REEF_PAGES_SIZE", "0");

	if (!directories)
		return;
	split_directories((char *)(uintptr_t)directories);
	options.pool = say("REEF_POOL", NULL);
	options.credential = say("REEF_CREDENTIAL", NULL);
	options.token = say("REEF_PAGES_TOKEN", NULL);
	options.space = say("REEF_PAGES_SPACE", "cache");
	options.cover = say("REEF_PAGES_COVER", "pages");
	options.program = "pages";
	options.page_size = (uint32_t)strtoul(page, NULL, 10);
	options.size_max = strtoull(size, NULL, 10);
	options.verify = strcmp(mode, "trust") != 0 &&
			 (!strcmp(mode, "verify") || !is_known_program());
	options.pread = next_pread;
	options.differs = tell_difference;
	through_init(&options);
	atomic_store(&is_on, true);
	preload_begin();
}

static void end(void) __attribute__((destructor));
static void end(void)
{
	if (preload_is_on())
		through_fini();
}
