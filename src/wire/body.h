/* body.h - what each kind of message says: a struct for every kind that has
 * something to say, in a union of what is asked and one of what is replied.
 *
 * The kind and the type in the header tell which member counts; reading another
 * one is a bug. pool.c has the order in which the fields travel. Texts and rows
 * are borrowed: by encoding from its caller, by decoding from the bytes.
 *
 * Thread: any. */
#ifndef REEF_WIRE_BODY_H
#define REEF_WIRE_BODY_H

#include "wire/counters.h"
#include "wire/cursor.h"

#define REEF_DOORS_MAX 4
#define REEF_SECRET_SIZE 32
#define REEF_RECOVER_MAX 32 /* sessions in one RECOVER */

/* Bits of session_open.flags. */
#define REEF_POOL_SERVANT 1u /* the pool's own: slots are kept for these */
/* Bits of user_remove.flags. */
#define REEF_POOL_FORCE 1u /* end sessions, give spaces to the owner */
/* Bits of space_open.flags. */
#define REEF_POOL_CREATE 1u    /* make it if absent */
#define REEF_POOL_EXCLUSIVE 2u /* -EEXIST if present */
#define REEF_POOL_STRICT 4u    /* a new one never has fewer copies */
/* Bits of flags in replies with rows. */
#define REEF_POOL_MORE 1u      /* ask again, after the last row */
#define REEF_POOL_UNCHANGED 2u /* no extents: the version is still that */
/* Of space_extents: the rows, of all pages, are all that there is. Else they
 * are what changed since the version that was asked with. */
#define REEF_POOL_WHOLE 4u
/* Bits of node_drain.flags and of setting.flags. */
#define REEF_POOL_DRAIN_STOP 1u	  /* take the drain back */
#define REEF_POOL_SETTING_READ 1u /* only tell the value */
/* Bits of extent_close.flags: what was there goes into fresh memory, if another
 * process may still have the old one mapped. */
#define REEF_POOL_FRESH 1u

/* What a SPACE_SAVE asks for. */
enum reef_save_step {
	REEF_SAVE_BEGIN = 1, /* close all extents to everybody else */
	REEF_SAVE_LOOK,	     /* how far that is; at least once a lease */
	REEF_SAVE_SESSIONS,  /* rows: who used the space, after one of them */
	REEF_SAVE_END,	     /* it is copied: open them */
	REEF_SAVE_TELL,	     /* what came of it: `after`, an error or 0 */
};
/* How far a save is. */
enum reef_save_state {
	REEF_SAVE_CLOSING = 1,
	REEF_SAVE_CLOSED,
	REEF_SAVE_OPENING /* it has ended; -ESTALE once all are open */
};

/* What a SPACE_RESTORE asks for, in a scratch space of the asker's. */
enum reef_restore_step {
	REEF_RESTORE_NUMBERS = 1, /* generation: names have later ones */
	REEF_RESTORE_EXTENT,	  /* extent, ordinal, epoch, size */
	REEF_RESTORE_SESSION,	  /* session: used it, and has ended */
	REEF_RESTORE_NAME,	  /* name: the space is shared from now on */
};

/* The keys of an extent at its node, by door: whoever may write it attaches by
 * one of the first, whoever may only read it by one of the second. */
struct reef_extent_keys {
	uint64_t keys[REEF_DOORS_MAX];
	uint64_t read_keys[REEF_DOORS_MAX];
};

/* What a REQUEST or a NOTE asks. SESSION_CLOSE, STATUS, NODE_READY, NOTICE,
 * TIME, HURRY and JANITOR say nothing; NODE_EXTENTS and SETTLE have rows alone.
 */
union reef_ask {
	/* --- client to broker --- */
	struct reef_ask_session_open {
		struct reef_text program; /* its name */
		uint32_t pid;
		uint32_t flags;
	} session_open;
	struct reef_ask_session_resume {
		uint32_t session;
		uint8_t secret[REEF_SECRET_SIZE]; /* the session's key */
		struct reef_text program;	  /* empty: as it was */
		uint32_t pid;			  /* 0: as it was */
	} session_resume;
	struct reef_ask_space_open {
		struct reef_text name; /* empty: see space */
		uint32_t flags;
		uint8_t kind;	 /* enum reef_space_kind; 0: by the name */
		uint8_t keeping; /* enum reef_space_keeping; 0: KEPT */
		uint64_t quota;	 /* of a new one, in bytes; 0: none */
		uint32_t copies; /* of a new one: 1 or 2; 0: 1 */
		/* The token's space. Without a name: the space to open, and 0
		 * is a new one. */
		uint32_t space;
		uint8_t rights; /* the token's; 0: there is no token */
		uint32_t era;	/* the token's */
		uint8_t secret[REEF_SECRET_SIZE];
	} space_open;
	struct {
		uint32_t space;
	} space_close;
	struct {
		uint32_t space;
		uint64_t version; /* what the asker has; 0: nothing */
		uint32_t ordinal; /* not 0: all rows, from that one on */
	} space_extents;
	struct {
		uint32_t space;
	} space_drop;
	struct {
		uint32_t space;
		uint64_t quota; /* bytes; 0: none */
	} space_quota;
	struct {
		uint32_t space;
	} space_revoke;
	struct {
		uint32_t space;
	} space_forget;
	struct {
		uint32_t space;
		uint8_t rights;
	} space_token;
	struct {
		uint32_t space;
		uint64_t size; /* 0: the pool's extent size */
		/* Extents of this number or later are news to the asker, who
		 * is content with one of them. 0: it wants a new one. */
		uint32_t since;
	} extent_add;
	struct {
		uint32_t space;
		uint32_t extent; /* of that space */
	} extent_remove;
	struct {
		uint32_t space;
		struct reef_text name;
		uint64_t value;
	} name_bind;
	struct {
		uint32_t space;
		struct reef_text name;
		uint64_t value;
		uint64_t generation; /* that it must have */
	} name_replace;
	struct {
		uint32_t space;
		struct reef_text name;
		uint64_t generation; /* that it must have; 0: any */
	} name_unbind;
	struct {
		uint32_t space;
		struct reef_text name;
	} name_lookup;
	struct {
		uint32_t space;
		struct reef_text prefix, after;
	} name_list;
	struct {
		uint32_t space;
		uint8_t step;	 /* enum reef_save_step */
		uint64_t number; /* of the save; BEGIN: 0 */
		uint32_t after;	 /* SESSIONS: the last that was told */
	} space_save;
	struct reef_ask_space_restore {
		uint32_t space;
		uint8_t step; /* enum reef_restore_step */
		uint32_t extent, ordinal, epoch, session;
		uint64_t size, generation;
		struct reef_text name;
	} space_restore;
	struct reef_ask_recover {
		uint32_t space;
		uint32_t sessions[REEF_RECOVER_MAX]; /* 0 after the last */
	} recover;				     /* broker to client */

	/* --- operator to broker --- */
	struct {
		uint8_t row;	/* enum reef_row_kind */
		uint32_t after; /* rows with higher numbers */
	} list;
	struct {
		struct reef_text name;
	} user_add;
	struct {
		uint32_t user;
		uint32_t flags;
	} user_remove;
	struct {
		uint32_t user;	   /* 0: the owner */
		uint64_t after_ns; /* then its sessions end; 0: now */
	} user_rotate;
	struct {
		uint32_t user;
		uint8_t limit;	/* enum reef_limit */
		uint64_t value; /* 0: as the setting says; or
				 * REEF_NO_LIMIT */
	} user_limit;
	struct {
		struct reef_text name;
	} node_add;
	struct {
		uint32_t node;
		uint32_t flags;
	} node_drain;
	struct {
		uint32_t node;
		uint64_t bytes; /* to take back */
	} node_reclaim;
	struct {
		uint32_t node;
	} node_remove;
	struct {
		uint32_t session;
	} session_end;
	struct {
		struct reef_text name;
		uint64_t value;
		uint32_t flags;
	} setting;

	/* --- node to broker --- */
	struct reef_ask_node_register {
		uint64_t incarnation;
		uint64_t domain;
		uint64_t capacity; /* bytes that it lends at most */
		struct reef_text addresses;
		/* The broker that it follows: epoch and start; 0: none. */
		uint64_t followed_epoch, followed_start;
		/* What it confirmed last: whose record, and which; 0: none. */
		uint64_t confirmed_epoch, confirmed_start, confirmed;
		uint64_t pool;	/* whose memory it has; 0: it has none */
		uint32_t keeps; /* 1: its memory outlasts its lives */
		uint32_t nic;	/* 1: its NIC does atomics, not its CPU (F6) */
		/* 1: it has forgotten nothing since it confirmed that. */
		uint32_t remembers;
	} node_register;
	struct {
		uint64_t incarnation;
		uint64_t lent;	       /* bytes */
		uint64_t machine_free; /* bytes of its machine's memory */
		uint32_t links;
		uint64_t wanted; /* bytes that it wants back */
	} node_pulse;

	/* --- broker to node --- */
	struct reef_ask_extent_create {
		uint32_t extent;
		uint32_t space;
		uint32_t epoch; /* the extent's */
		uint64_t size;
		uint64_t copy; /* its id, which the pool gives once */
	} extent_create;
	struct {
		uint32_t extent;
	} extent_drop;
	struct {
		uint32_t extent;
		uint32_t flags;
	} extent_close;
	struct {
		uint32_t extent;
		uint32_t epoch; /* the extent's */
	} extent_reopen;
	struct reef_ask_extent_pull {
		struct reef_ask_extent_create copy; /* what is to be made */
		/* What it is made of, at the other node, and one more than its
		 * epoch there; 0: what has the same number and moves. */
		uint32_t source, source_epoch;
		/* The node that has the extent, and its read keys there. */
		uint64_t domain;
		struct reef_text addresses;
		uint64_t keys[REEF_DOORS_MAX];
		uint8_t secret[REEF_SECRET_SIZE]; /* to prove to that node */
	} extent_pull;
	struct {
		uint32_t session;
	} fence;
	struct {
		uint32_t session;
		uint32_t number; /* of the last link that ends; not 0 */
	} end;
	struct reef_ask_confirm {
		uint64_t start;	   /* a number of the broker's start */
		uint64_t sequence; /* of its journal, durable; 0: none */
	} confirm;
};

/* What an ANSWER replies whose status is 0. What has no member here says
 * nothing; EXTENT_ADD, SPACE_RESTORE and SETTLE have rows alone. */
union reef_reply {
	/* Replies to SESSION_OPEN and SESSION_RESUME. */
	struct reef_reply_session {
		uint32_t session;
		uint8_t secret[REEF_SECRET_SIZE]; /* the session's key */
		uint64_t ttl_ns;
		uint64_t renewal_key; /* to WRITE its renewal word by */
		uint64_t table_key;   /* to READ the broker's table by */
		uint64_t pool;	      /* the pool's id */
		uint64_t pool_epoch;
		uint64_t extent_size; /* the pool's usual one */
	} session;
	struct reef_reply_space_open {
		uint32_t space;
		uint8_t rights;	      /* that the session has there */
		uint64_t extent_size; /* the pool's usual one */
		uint8_t keeping;
		uint8_t kind;
		uint64_t version; /* of the rows */
		uint32_t flags;
		uint32_t user;	 /* whose it is; 0: the owner's */
		uint32_t copies; /* wanted, of its memory */
	} space_open;		 /* rows: nodes, extents */
	struct reef_reply_space_extents {
		uint64_t version; /* of the rows */
		uint32_t flags;
	} space_extents; /* rows: nodes, extents */
	struct {
		uint32_t era;
	} space_revoke;
	struct {
		uint32_t space;
		uint32_t era;
		uint8_t rights;
		uint8_t secret[REEF_SECRET_SIZE];
	} space_token;
	struct {
		uint64_t generation; /* that it has now */
	} name_bind;		     /* and to NAME_REPLACE */
	struct {
		uint64_t value;
		uint64_t generation;
	} name_lookup;
	struct {
		uint32_t flags;
	} name_list; /* rows: names */
	struct {
		uint64_t unix_ns; /* since 1970, by the broker's clock */
	} time;
	struct reef_reply_space_save {
		uint64_t number; /* of the save */
		uint8_t state;	 /* enum reef_save_state */
		uint64_t pool, broker_epoch;
		uint8_t kind, keeping; /* of the space */
		uint64_t quota;	       /* bytes; 0: none */
		uint32_t flags;	       /* REEF_POOL_MORE */
	} space_save;		       /* rows: sessions */

	struct reef_reply_status {
		uint64_t pool; /* the pool's id */
		uint64_t pool_epoch;
		uint64_t broker_epoch;
		uint64_t uptime_ns;
		uint32_t events; /* in this start */
		uint32_t stuck;	 /* what sessions left and nobody recovers */
		/* Of all sessions since it started, as struct reef_counters
		 * has them; for the owner. */
		uint64_t counters[REEF_COUNTERS];
		uint64_t broker[REEF_BROKER_COUNTERS];
	} status; /* rows: the last events */
	struct {
		uint32_t flags;
	} list; /* rows: of the kind that was asked for */
	struct {
		uint32_t user;
		uint32_t era;
		uint8_t secret[REEF_SECRET_SIZE]; /* the user's key */
	} user_add;				  /* and user_rotate */
	struct {
		uint32_t sessions; /* that nodes have not confirmed yet */
		uint32_t spaces;   /* that became the owner's */
	} user_remove;
	struct {
		uint32_t node;
		uint8_t secret[REEF_SECRET_SIZE]; /* the node's key */
	} node_add;
	struct {
		uint64_t bytes; /* that will come back */
	} node_reclaim;
	struct {
		uint64_t value;
	} setting;

	struct {
		uint32_t node;
		uint64_t ttl_ns; /* a node silent for longer is dead */
		uint64_t broker_epoch;
		uint64_t pool;	    /* the pool's id */
		uint64_t period_ns; /* of its pulses */
	} node_register;	    /* rows: itself, sessions fenced already */
	struct reef_reply_recover {
		/* Of each session that was named: 0: nothing of it is left in
		 * the space. Else an error, as a positive number. */
		uint32_t errors[REEF_RECOVER_MAX];
	} recover;
	struct {
		uint32_t unsure;    /* 1: too few nodes follow this broker */
		uint64_t period_ns; /* of its pulses from now on */
	} node_pulse;
	/* Replies to EXTENT_CREATE, REOPEN and PULL: the keys that clients
	 * attach by; and to EXTENT_CLOSE: in keys, the read keys that nodes
	 * READ it by, and nothing else. */
	struct reef_extent_keys extent;
};

struct reef_body {
	union {
		/* This is first, so that {0} clears all of it. */
		uint8_t all[sizeof(union reef_reply) > sizeof(union reef_ask)
				    ? sizeof(union reef_reply)
				    : sizeof(union reef_ask)];
		union reef_ask ask;
		union reef_reply reply;
	};
	/* Rows, one after the other (row.h), of the kinds that have any. */
	const uint8_t *rows;
	size_t rows_size;
};

#endif
