/* objects.h - verbs on the objects of one kind in a space: what `reef map`,
 * `reef tree` and `reef log` share.
 *
 *   reef KIND list SPACE
 *   reef KIND VERB SPACE NAME ...
 *
 * (1) A verb gets the object open, made before if the verb makes it; `list`
 *     and `drop` are done here.
 * (2) A flag is refused by a verb that does not name it.
 *
 * Thread: main. */
#ifndef REEF_CMD_OBJECTS_H
#define REEF_CMD_OBJECTS_H

#include "cmd/operate.h"

#include <reef/reef.h>

#define OBJECTS_WORDS 5

/* What was asked for. The wishes of a kind begin with this. */
struct objects_wish {
	const char *words[OBJECTS_WORDS + 1]; /* VERB SPACE NAME ...; NULL */
	uint32_t count;
	bool json;
	const struct reef_settings *settings; /* that the pool was opened by */
};

struct objects_verb {
	const char *name, *takes;
	uint32_t least, most; /* words, with the verb */
	const char *flags;    /* that it takes, a blank between; NULL: none */
	bool makes;	      /* make the object if there is none */
	/* 0, the exit status if an error was printed, or -errno. NULL: list and
	 * drop. */
	int (*run)(void *object, const struct objects_wish *wish);
};

struct objects_kind {
	const char *name; /* of the command, and of one object */
	const char *usage;
	const struct objects_verb *verbs; /* to name NULL */
	const char *columns;		  /* of `list`, as operate_table */
	/* Open the object; makes: or make it. 0, the exit status if an error
	 * was printed, or -errno. */
	int (*open)(struct reef_space *space, const struct objects_wish *wish,
		    const char *name, bool makes, void **out);
	void (*close)(void *object);
	int (*drop)(struct reef_space *space, const char *name);
	/* Add a row of `list`; table NULL: print its line of JSON. */
	int (*list)(void *object, const char *name, struct reef_table *table);
	/* Say what an error of a verb means here, and return the exit status;
	 * or return rc. Optional. */
	int (*explain)(const struct objects_wish *wish, int rc);
};

/* Read the settings, check the words, open the pool and do what they say; the
 * exit status. flags: of this kind, which fill in the wish; to {0}. */
int objects_main(const struct objects_kind *kind, int argc, char **argv,
		 const struct reef_config_flag *flags,
		 struct objects_wish *wish);

/* --- of kinds with keys: map and tree --- */

/* What `put` puts. */
struct objects_value {
	const char *bytes;
	size_t size;
	uint64_t expires_ms; /* 0: never */
	char *input;	     /* to be freed */
};
/* Take the value from word 4, or all of standard input, of `max` bytes at most;
 * and when it expires from --expire (NULL: never) and the pool's time. 0, 1: an
 * error was printed, or -ENOMEM. */
int objects_take_value(const char *kind, const struct objects_wish *wish,
		       const char *expire, uint64_t now_ms, size_t max,
		       struct objects_value *out);
/* Print a value, and a newline unless raw. */
void objects_print_value(const void *value, size_t size, bool raw);
/* Print a key, with \xHH for bytes that are not printable. */
void objects_print_key(const void *key, size_t size);
/* The explain of a kind whose word 3 is a key. */
int objects_explain_key(const char *kind, const struct objects_wish *wish,
			int rc);

#endif
