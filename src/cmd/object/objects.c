/* objects.c - see objects.h. */
#include "cmd/object/objects.h"

#include "base/text.h"
#include "base/units.h"
#include "cmd/object/hold.h"
#include "cmd/print/json.h"

#include <ctype.h>
#include <errno.h>
#include <reef/map.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what is asked for --- */

static const struct objects_verb *verb_of(const struct objects_kind *kind,
					  const struct objects_wish *wish)
{
	const struct objects_verb *verb = kind->verbs;

	while (verb->name && strcmp(verb->name, wish->words[0]) != 0)
		verb++;
	return verb->name ? verb : NULL;
}

/* What a verb does that opens no object; NULL: it opens one. */
static const struct objects_whole *whole_of(const struct objects_kind *kind,
					    const char *verb)
{
	const struct objects_whole *whole = kind->wholes;

	while (whole && whole->name && strcmp(whole->name, verb) != 0)
		whole++;
	return whole && whole->name ? whole : NULL;
}

/* Say which verbs there are, and that the one that is wanted is not among them
 * (NULL: that none was named); returns 2. */
static int refuse_verb(const struct objects_kind *kind, const char *wanted)
{
	char text[256] = "";
	size_t used = 0;

	for (uint32_t i = 0; kind->verbs[i].name; i++)
		used += (size_t)snprintf(
			text + used,
			used < sizeof(text) ? sizeof(text) - used : 0, "%s%s",
			!i			  ? ""
			: kind->verbs[i + 1].name ? ", "
						  : " or ",
			kind->verbs[i].name);
	return wanted ? cmd_usage_error(kind->name,
					"there is no `reef %s %.40s`, but %s",
					kind->name, wanted, text)
		      : cmd_usage_error(kind->name, "a verb is missing: %s",
					text);
}

static bool takes_flag(const struct objects_verb *verb, const char *flag)
{
	const char *at = verb->flags;
	size_t size = strlen(flag);

	while (at && *at) {
		size_t word = strcspn(at, " ");

		if (word == size && !memcmp(at, flag, size))
			return true;
		at += word + strspn(at + word, " ");
	}
	return false;
}

/* Check the words and flags. -1: they are a verb and what it takes; otherwise
 * the exit status. */
static int check_words(const struct objects_kind *kind,
		       const struct reef_config_flag *flags,
		       const struct objects_wish *wish)
{
	const struct objects_verb *verb;

	if (!wish->count)
		return refuse_verb(kind, NULL);
	verb = verb_of(kind, wish);
	if (!verb)
		return refuse_verb(kind, wish->words[0]);
	if (wish->count < verb->least || wish->count > verb->most)
		return cmd_usage_error(kind->name, "%s takes %s", verb->name,
				       verb->takes);
	for (; flags->name; flags++)
		if (((flags->given && *flags->given) ||
		     (flags->value && *flags->value)) &&
		    !takes_flag(verb, flags->name))
			return cmd_usage_error(kind->name,
					       "%s does not take --%s",
					       verb->name, flags->name);
	if (verb->effect != OBJECTS_READS && !kind->is_apart &&
	    operate_is_own_name(wish->words[2]))
		return operate_refuse_own_name(kind->name, wish->words[2]);
	return -1;
}

/* --- what went wrong --- */

/* The verb that removes an object: the one that is done here and is no list. */
static const char *drop_verb(const struct objects_kind *kind)
{
	const struct objects_verb *verb = kind->verbs;

	while (verb->run || whole_of(kind, verb->name) || verb->least < 3)
		verb++;
	return verb->name;
}

/* is_open: the object as a whole is there. */
static int report_error(const struct objects_kind *kind,
			const struct objects_wish *wish, int rc, bool is_open)
{
	const char *name = wish->words[2];

	if (rc < 0 && is_open && kind->explain)
		rc = kind->explain(wish, rc);
	if (rc >= 0)
		return rc;
	if (rc == -EEXIST && name)
		return operate_say(kind->name, "\"%.80s\" is not a %s", name,
				   kind->name);
	if (rc == -EINVAL && name)
		return operate_say(kind->name,
				   "\"%.80s\" is not a name for a %s", name,
				   kind->name);
	if (rc == -REEF_ELOST && is_open)
		return operate_say(kind->name,
				   "%.80s: the node that lent this part of its "
				   "memory died, or was started anew",
				   name);
	if (rc == -REEF_ELOST && name)
		return operate_say(kind->name,
				   "%.80s: the node that lent its memory died, "
				   "or was started anew; `reef %s %s` "
				   "forgets it",
				   name, kind->name, drop_verb(kind));
	return operate_failed(kind->name, name ? name : wish->words[1], rc);
}

/* --- listing --- */

struct list {
	const struct objects_kind *kind;
	const struct objects_wish *wish;
	struct reef_space *space;
	struct reef_table *table; /* NULL: JSON */
};

/* List a name of the space if it is of this kind; names of other things, and
 * objects that are lost or just dropped, are passed over. */
static int list_if_of_kind(void *context, const char *name)
{
	struct list *list = context;
	void *object;
	int rc;

	if (operate_is_own_name(name))
		return 0;
	rc = list->kind->open(list->space, list->wish, name, false, &object);
	if (!rc) {
		rc = list->kind->list(object, name, list->table);
		list->kind->close(object);
	}
	switch (rc) {
	case -EEXIST:
	case -ENOENT:
	case -REEF_ELOST:
	case -REEF_EDROPPED:
	case -REEF_EVERSION:
	case -EFAULT:
		return 0;
	default:
		return rc;
	}
}

static int list_objects(const struct objects_kind *kind,
			struct reef_space *space,
			const struct objects_wish *wish)
{
	struct list list = {.kind = kind, .wish = wish, .space = space};
	int rc;

	if (!wish->json)
		list.table = operate_table(kind->columns);
	rc = hold_each_name(space, list_if_of_kind, &list);
	if (!rc && list.table)
		rc = reef_table_print(list.table, stdout);
	reef_table_destroy(list.table);
	return rc;
}

/* --- doing it --- */

static int run_verb(const struct objects_kind *kind, struct reef_space *space,
		    const struct objects_wish *wish)
{
	const struct objects_verb *verb = verb_of(kind, wish);
	const struct objects_whole *whole = whole_of(kind, verb->name);
	const char *name = wish->words[2];
	void *object = NULL;
	int rc;

	if (whole)
		return report_error(kind, wish, whole->run(space, wish), false);
	if (!name)
		return report_error(kind, wish, list_objects(kind, space, wish),
				    false);
	if (verb->run)
		rc = kind->open(space, wish, name,
				verb->effect == OBJECTS_MAKES, &object);
	else
		rc = kind->drop(space, name);
	operate_tell_waiting(NULL);
	if (rc == -ENOENT)
		return operate_say(kind->name, "there is no %s \"%.80s\" in %s",
				   kind->name, name, wish->words[1]);
	if (rc || !verb->run)
		return report_error(kind, wish, rc, false);
	rc = verb->run(object, wish);
	kind->close(object);
	return report_error(kind, wish, rc, true);
}

static int open_and_run(const struct objects_kind *kind,
			const struct reef_settings *settings,
			struct objects_wish *wish)
{
	struct reef_space *space;
	struct reef *reef;
	int rc;

	operate_tell_waiting(kind->name);
	rc = operate_open(kind->name, settings, NULL, &reef);
	if (rc >= 0)
		return rc;
	wish->reef = reef;
	rc = reef_space_open(reef, wish->words[1], NULL, &space);
	if (rc == -ENOENT)
		rc = operate_say(kind->name, "there is no space \"%.80s\"",
				 wish->words[1]);
	else if (rc)
		rc = operate_failed(kind->name, wish->words[1], rc);
	else
		rc = run_verb(kind, space, wish);
	reef_close(reef);
	return rc;
}

int objects_main(const struct objects_kind *kind, int argc, char **argv,
		 const struct reef_config_flag *flags,
		 struct objects_wish *wish)
{
	const struct reef_config_input input = {.argc = argc,
						.argv = argv,
						.uses = REEF_USE_CLIENT,
						.flags = flags};
	struct reef_settings settings;
	int rc;

	for (uint32_t i = 0; kind->verbs[i].name; i++)
		cmd_tell_word(kind->verbs[i].name, kind->verbs[i].takes);
	rc = cmd_settings(&input, kind->usage, &settings);
	if (rc >= 0)
		return rc;
	wish->count = reef_config_rest_count(settings.config);
	for (uint32_t i = 0; i < wish->count && i < OBJECTS_WORDS; i++)
		wish->words[i] = reef_config_rest(settings.config, i);
	wish->settings = &settings;
	rc = check_words(kind, flags, wish);
	if (rc < 0)
		rc = open_and_run(kind, &settings, wish);
	reef_settings_fini(&settings);
	return rc;
}

/* --- keys and values --- */

/* Read all of standard input; free *out. */
static int read_input(const char *kind, size_t max, char **out, size_t *size)
{
	size_t room = 65536, got = 0, more;
	char *bytes = NULL, *larger;

	do {
		larger = realloc(bytes, room);
		if (!larger) {
			free(bytes);
			return -ENOMEM;
		}
		bytes = larger;
		more = fread(bytes + got, 1, room - got, stdin);
		got += more;
		if (got == room)
			room *= 2;
	} while (more && got <= max);
	if (ferror(stdin) || got > max) {
		free(bytes);
		return operate_say(kind, ferror(stdin)
						 ? "cannot read the value"
						 : "the value is too long");
	}
	*out = bytes;
	*size = got;
	return 0;
}

int objects_take_value(const char *kind, const struct objects_wish *wish,
		       const char *expire, uint64_t now_ms, size_t max,
		       struct objects_value *out)
{
	uint64_t ns = 0;
	int rc;

	*out = (struct objects_value){.bytes = wish->words[4]};
	if (expire && (reef_duration_parse(expire, &ns) || !ns))
		return operate_say(kind, "\"%.40s\" is not a time, as 10s",
				   expire);
	if (expire)
		out->expires_ms = now_ms + (ns + 999999) / 1000000;
	if (out->bytes) {
		out->size = strlen(out->bytes);
		return 0;
	}
	rc = read_input(kind, max, &out->input, &out->size);
	out->bytes = out->input;
	return rc;
}

void objects_print_value(const void *value, size_t size, bool raw)
{
	fwrite(value, 1, size, stdout);
	if (!raw)
		putchar('\n');
}

/* How many bytes the printable character has that begins a text; 0: that is
 * none. */
static size_t find_printable(const char *text, size_t size)
{
	size_t first;

	if (*text == '\\')
		return 0;
	if (!reef_table_locale_is_utf8())
		return isprint((unsigned char)*text) ? 1 : 0;
	first = reef_text_character(text, size);
	return reef_text_is_plain(text, first) ? first : 0;
}

static void print_bytes(const void *bytes, size_t left)
{
	const char *text = bytes;
	size_t size;

	for (; left; text += size, left -= size) {
		size = find_printable(text, left);
		fwrite(text, 1, size, stdout);
		if (!size) {
			printf("\\x%02x", (unsigned char)*text);
			size = 1;
		}
	}
}

void objects_print_entry(const struct objects_wish *wish, bool values,
			 const struct reef_map_entry *entry)
{
	struct reef_json json = {.stream = stdout};

	if (wish->json) {
		reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
		reef_json_bytes(&json, "key", entry->key, entry->key_size);
		reef_json_bytes(&json, "value", entry->value,
				entry->value_size);
		reef_json_end(&json);
		return;
	}
	print_bytes(entry->key, entry->key_size);
	if (values) {
		putchar('\t');
		print_bytes(entry->value, entry->value_size);
	}
	putchar('\n');
}

int objects_explain_key(const char *kind, const struct objects_wish *wish,
			int rc)
{
	if (rc == -ENOENT && wish->words[3])
		return operate_say(kind, "there is no key \"%.80s\" in %s",
				   wish->words[3], wish->words[2]);
	if (rc == -EINVAL)
		return operate_say(kind,
				   "the key or the value is longer than this "
				   "%s takes",
				   kind);
	return rc;
}
