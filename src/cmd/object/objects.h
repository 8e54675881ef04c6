/* objects.h - verbs on the objects of one kind in a space: what `reef map`,
 * `reef tree`, `reef log` and `reef file` share.
 *
 *   reef KIND list SPACE
 *   reef KIND VERB SPACE NAME ...
 *
 * (1) A verb gets the object open, made before if the verb makes it; or the
 *     space alone. `list` and `drop` are done here, unless the kind has its
 *     own.
 * (2) A flag is refused by a verb that does not name it.
 * (3) What has a name of Reef's own is not listed, and refused by a verb that
 *     does not only read.
 *
 * Thread: main. */
#ifndef REEF_CMD_OBJECT_OBJECTS_H
#define REEF_CMD_OBJECT_OBJECTS_H

#include "cmd/operate.h"

#include <reef/reef.h>

#define OBJECTS_WORDS 5

/* What was asked for. The wishes of a kind begin with this. */
struct objects_wish {
	const char *words[OBJECTS_WORDS + 1]; /* VERB SPACE NAME ...; NULL */
	uint32_t count;
	bool json;
	const struct reef_settings *settings; /* that the pool was opened by */
	struct reef *reef;		      /* the pool, once it is open */
};

enum objects_effect {
	OBJECTS_READS,
	OBJECTS_CHANGES,
	OBJECTS_MAKES, /* changes the object, or makes it if there is none */
};

struct objects_verb {
	const char *name, *takes;
	uint32_t least, most; /* words, with the verb */
	const char *flags;    /* that it takes, a blank between; NULL: none */
	enum objects_effect effect;
	/* 0, the exit status if an error was printed, or -errno. NULL: list and
	 * drop. */
	int (*run)(void *object, const struct objects_wish *wish);
};

/* What a verb does that opens no object. */
struct objects_whole {
	const char *name; /* of the verb */
	/* As run of a verb. */
	int (*run)(struct reef_space *space, const struct objects_wish *wish);
};

struct objects_kind {
	const char *name; /* of the command, and of one object */
	const char *usage;
	const struct objects_verb *verbs; /* to name NULL */
	/* Of those verbs the ones that open no object, to {0}. Optional. */
	const struct objects_whole *wholes;
	const char *columns; /* of `list`, as operate_table */
	/* Its objects are no names of the space: any name is theirs. */
	bool is_apart;
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
/* Print a line for an entry: its key, and a tab and the value where `values`
 * asks; or of JSON with both, where the wish does. In keys and values are \xHH
 * for bytes that are not printable. */
struct reef_map_entry;
void objects_print_entry(const struct objects_wish *wish, bool values,
			 const struct reef_map_entry *entry);
/* The explain of a kind whose word 3 is a key. */
int objects_explain_key(const char *kind, const struct objects_wish *wish,
			int rc);

#endif
