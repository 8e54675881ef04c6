/* internal.h - the parts of a broker, to each other.
 *
 *   serve.c     start and stop; who may ask what; requests to their functions
 *   task.c      its fibers: spawned, put to sleep, ended by stop
 *   commit.c    check, append, apply, wait; repetitions; snapshots
 *   confirm.c   which of several brokers speaks for the pool
 *   table.c     the table that clients READ: states, notices, epochs
 *   count.c     what sessions say that they did
 *   sessions.c  open, resume, close; renewal words; settings
 *   users.c     credentials, limits, links
 *   expel.c     users who are shut out, and the keys that they knew
 *   lease.c     samples; ALIVE -> EXPIRED -> FENCED -> RECOVERED
 *   acknowledge.c  who has let go of what changed: waiting for that
 *   recovery.c  what FENCED sessions left in spaces
 *   names.c     requests about names
 *   nodes.c     who lends; death; fences; calls to nodes
 *   settle.c    links that sessions lost, ended at their nodes
 *   register.c  register, what a node has, pulse
 *   changes.c   what changed in a space since a version of it
 *   spaces.c    open, extents, drop, quota, token, revoke
 *   extents.c   create, remove
 *   place.c     which node memory comes to
 *   twins.c     second copies
 *   failover.c  one copy is left: from FAILING to LIVE
 *   recopy.c    second copies again, while the space is used
 *   room.c      requests for memory that wait for room
 *   drop.c      what the state does not have goes at the nodes too
 *   reclaim.c   revocable extents back to their owner
 *   rekey.c     new keys for a space whose tokens were revoked
 *   save.c      an image of a space, while it is used
 *   restore.c   a space as an image has it
 *   move.c      drain: extents from node to node
 *   status.c    lists, events
 *
 * What is durable is in `state` and changes through broker_commit only. What is
 * in the structs below is of this start: it can be lost, and is told anew by
 * nodes and clients when they come back.
 *
 * A fiber that waited (journal, call, sleep) looks everything up again: what it
 * pointed to may be gone.
 *
 * What was applied is not yet durable, nor confirmed (confirm.c). No answer
 * leaves before everything that was applied when its function returned is both:
 * serve.c waits for that, errors and reads included, so that no function needs
 * to. Before it publishes, whoever does so waits itself; a call to a node
 * waits.
 *
 * Thread: owner. */
#ifndef REEF_POOL_BROKER_INTERNAL_H
#define REEF_POOL_BROKER_INTERNAL_H

#include "base/fiber/sched.h"
#include "base/random.h"
#include "fabric/memory.h"
#include "pool/broker/broker.h"
#include "pool/broker/journal/journal.h"
#include "pool/broker/state/state.h"
#include "pool/keys.h"
#include "pool/rpc.h"

/* What a peer is; peer->user points to it. */
enum broker_member_kind { BROKER_UNKNOWN, BROKER_CLIENT, BROKER_NODE };

struct broker_member {
	enum broker_member_kind kind;
	struct reef_peer *peer;
	uint32_t user;	  /* clients: whose key was proven */
	uint32_t era;	  /* and which of them */
	uint32_t number;  /* nodes: likewise */
	uint32_t fabric;  /* its link's: an index into the mesh */
	uint32_t serving; /* requests of it that are being served */
	struct broker_session *session;
	struct broker_node *node;
};

/* A session that is not RECOVERED. */
struct broker_session {
	uint32_t id, user;
	struct reef_peer *peer; /* its control link now; NULL: none */
	uint32_t pid;
	char name[64];	 /* of its program */
	uint32_t fabric; /* its control link's, when there was one last */
	/* Its renewal word, exposed on each fabric that it came by. */
	struct broker_renewal {
		struct reef_memory *memory;
		struct reef_region *region;
	} renewals[REEF_MESH_MAX];
	/* lease.c */
	uint64_t ttl_ns; /* as it was told */
	uint64_t sampled_word, sampled_ns, renewed_ns;
	uint64_t oldest; /* R8: what it announced; 0: not in this start */
	uint64_t looked; /* its word then */
	bool hurries;	 /* its word says that it waits for memory */
	struct reef_counters counters; /* as it said last: count.c */
	uint64_t counted_ns;	       /* when that was looked at */
	uint64_t waiting;   /* bytes that it says it has freed and cannot use */
	bool gives;	    /* it says that it is about to give memory away */
	uint64_t behind_ns; /* `oldest` is behind since then; 0: it is not */
	uint32_t unchanged; /* samples: (1) */
	uint32_t pinning;   /* samples: (10) */
	uint64_t pinned_ns; /* when they were enough; 0: they are not */
	uint64_t forgiven_ns; /* when a resume began that anew; 0: never */
	uint64_t pool_epoch;  /* at the last sample */
	/* acknowledge.c: the pool epoch that it has acknowledged, and the one
	 * that was waited for at the last sample, 0: none; since how many */
	uint64_t acknowledged, owed;
	uint32_t overdue;
	uint64_t awaited_ns;	/* when those began */
	uint64_t awaited_epoch; /* the pool's, at the last sample */
	bool is_waiting;	/* perhaps, for a node: lease.c (12) */
	size_t excuses;		/* how often that began them anew */
	bool is_from_before;	/* this start: it may have any space open */
	bool ending;		/* EXPIRED or FENCED, perhaps not durably yet */
	bool closed;		/* by itself: its end is one event */
	bool attended;		/* a fiber takes it onwards from there */
	bool fenced;		/* FENCED, and that is published */
	uint32_t settles;	/* questions of it in settle.c */
	bool janitor;		/* it recovers in any space: recovery.c */
	uint32_t expelled;	/* whose it was, of users.c (3) */
	uint64_t saved;		/* its last save that went well */
	uint32_t notices;
	/* Spaces that it opened, with what its token allows. */
	struct broker_grant {
		uint32_t space;
		uint8_t rights;
	} * grants;
	uint32_t grants_count, grants_room;
	/* nodes.c (8): nodes that it was told keys of, in the order of their
	 * numbers; and all with lower numbers than told_below. */
	uint32_t *told, told_count, told_room, told_below;
	struct broker_session *next;
};

#define BROKER_MOVES_MAX 4 /* from one node at once */

/* A node that is not DEAD. */
struct broker_node {
	uint32_t id;
	uint64_t incarnation, domain;
	bool nic;		/* which does its atomics; else its CPU (F6) */
	struct reef_peer *peer; /* NULL: away, and not yet taken for dead */
	bool ready;		/* told all its extents in this start */
	uint64_t heard_ns;
	/* nodes.c (10): it was told to pulse so often that its silence counts
	 * soon; and it has something that makes that matter. */
	bool is_told_often, pulses_often, fails_soon;
	uint32_t messages; /* of its peer, when it was looked at last */
	/* confirm.c */
	uint64_t followed;  /* the epoch in which it followed us; 0: none */
	uint64_t confirmed; /* sequence, in this epoch; 0: none */
	/* When it was asked what it answered last, with a sequence or without;
	 * 0: never. */
	uint64_t confirmed_ns, answered_ns;
	bool asking;		       /* a fiber does */
	uint64_t machine_free, wanted; /* as it said last */
	uint32_t links;
	uint64_t reclaiming;  /* bytes on their way back: reclaim.c */
	bool changed;	      /* keys of its extents, since clients were told */
	uint32_t fences_told; /* slots of sessions, since REGISTER */
	/* drop.c */
	struct broker_drop *drops;
	uint32_t drops_count, drops_room;
	uint64_t drops_size; /* bytes of them */
	bool dropping;	     /* a fiber has them */
	/* settle.c */
	bool settling; /* a fiber asks for ENDs */
	uint32_t settled_user;
	/* move.c */
	bool draining;			   /* a fiber works on it */
	uint32_t moving[BROKER_MOVES_MAX]; /* extents, each by a fiber */
	uint64_t stuck_until_ns; /* no room elsewhere: not before then */
	struct broker_node *next;
};

/* What an extent's node told: its keys, by door. By extent number. */
struct broker_extent {
	uint32_t number, node;
	bool present; /* its keys are known */
	bool told;    /* since the node registered last */
	bool closed;  /* withdrawn from clients, or being so: move.c */
	/* And by rekey.c, save.c or recopy.c, which open it again: the number
	 * of that work (broker_close_number); 0: by none of them. Whoever finds
	 * another number has it no more in hand, and leaves it alone, whatever
	 * became of it. */
	uint64_t rekeying;
	/* save.c: closed, and read by that session alone, by these keys. */
	uint32_t saver;
	uint64_t save, save_keys[REEF_DOORS_MAX];
	bool revoking; /* on its way back to its owner: reclaim.c */
	uint64_t retry_ns, pause_ns; /* move.c (8) */
	struct reef_extent_keys keys;
};

struct broker_event {
	uint64_t number, at_ns;
	char text[160];
};
#define BROKER_EVENTS 256
#define BROKER_CHANGES 4096 /* that are kept */
#define BROKER_TOLD_MAX 256 /* of them in one answer */

/* The witnesses from one record on: confirm.c. */
#define BROKER_WITNESSES_MAX 5
#define BROKER_COUNCILS_MAX 16
struct broker_council {
	uint64_t since; /* that record's sequence */
	uint32_t count, nodes[BROKER_WITNESSES_MAX];
};

struct reef_broker {
	struct reef_broker_options options;
	struct reef_key *key; /* a secret */
	struct reef_sched *sched;
	struct reef_port *port;
	struct reef_rpc *rpc;
	struct reef_journal *journal;
	struct reef_state *state;
	struct reef_random random;
	uint64_t epoch, started_ns;
	uint64_t applied;	/* sequence of the last record */
	uint64_t snapshot_size; /* of the last one in this start */
	int health;
	bool stopping;
	/* confirm.c */
	uint64_t start;		   /* a number that no other start has */
	uint64_t base_epoch, base; /* of the journal when it was opened */
	uint64_t chosen_at;	   /* sequence of the record that says so */
	struct broker_council councils[BROKER_COUNCILS_MAX];
	uint32_t councils_count;
	bool chosen, sure;
	bool chosen_by_nobody;	    /* there was no witness */
	uint64_t sure_ns;	    /* when that changed last */
	bool told_missing;	    /* since then, which nodes are missing */
	uint64_t watched_ns;	    /* when somebody looked last */
	uint64_t durable;	    /* at least up to this sequence */
	uint64_t confirmed, wanted; /* sequences */
	uint64_t wanted_ns;	    /* confirmations not older than that, too */
	/* task.c */
	struct reef_group *group;
	uint32_t tasks;
	struct broker_sleeper {
		struct reef_fiber *fiber;
		struct broker_sleeper *next;
	} * sleepers;
	char addresses[512];
	/* table.c; a copy for each fabric, whose domains differ */
	struct reef_memory *tables[REEF_MESH_MAX];
	struct reef_region *table_regions[REEF_MESH_MAX];
	/* lease.c, R8 */
	uint64_t reclaim_epoch, safe_epoch;
	uint64_t lacked_ns;	  /* when somebody had no room; 0: never */
	uint64_t hurry_ns;	  /* as in the table; 0: none */
	uint32_t hurry_rounds;	  /* until it ends */
	uint32_t hurry_stalled;	  /* looks in which the epoch did not move */
	bool hurry_asked;	  /* by a note since the last look */
	uint32_t shorts, returns; /* as in the table */
	uint64_t safe_view;	  /* pool epoch that safe_epoch was found in */
	struct broker_awaited *awaited;	    /* acknowledge.c */
	struct broker_recovery *recoveries; /* recovery.c */
	struct broker_rekey *rekeys;	    /* rekey.c */
	struct broker_rekeyer *rekeyers;
	struct broker_save *saves; /* save.c */
	uint64_t close_numbers;	   /* dealt out: broker_extent.rekeying */
	struct broker_care *cares; /* failover.c */
	/* room.c */
	struct broker_adder *adders;
	uint32_t adders_last; /* number */
	bool adds;	      /* a fiber looks at them */
	/* settle.c */
	struct broker_settling *settlings;
	uint64_t settlings_last; /* number */
	bool settles;		 /* a fiber answers them */
	/* Of this start alone. */
	struct broker_session *sessions;
	/* By slot: where one is found at once, if there is memory for that. */
	struct broker_session **slots;
	uint32_t slots_count;
	struct broker_user *users;	 /* users.c */
	struct broker_telling *tellings; /* expel.c */
	bool tellings_lost;
	struct broker_node *nodes;
	struct broker_extent *extents; /* sorted by number */
	uint32_t extents_count, extents_room;
	/* changes.c */
	uint64_t changes;	/* the last stamp */
	uint64_t first_version; /* of this start */
	uint64_t version_floor; /* of spaces without an entry */
	struct broker_version {
		uint32_t space;
		uint64_t version;
	} * versions;
	uint32_t versions_count, versions_room;
	struct broker_change {
		uint32_t space, extent;
	} log[BROKER_CHANGES]; /* by stamp */
	struct broker_event events[BROKER_EVENTS];
	uint64_t events_count;
	struct reef_counters counters;	       /* of all sessions: count.c */
	uint64_t counts[REEF_BROKER_COUNTERS]; /* of the broker itself */
};

/* --- serve.c --- */

/* Serve no more: set health to the error, and wake whoever waits. */
void broker_fail(struct reef_broker *broker, int error);
/* Who a peer is. NULL: its link is gone. */
static inline struct broker_member *
broker_member_of(const struct reef_peer *peer)
{
	return peer->user;
}
/* Answer a request whose function returned REEF_LATER, once it may be told. */
void broker_answer_later(struct reef_broker *broker,
			 const struct reef_request *request, int rc,
			 const struct reef_body *answer);
/* How many bytes the rows of an answer may take. */
size_t broker_rows_max(const struct reef_broker *broker,
		       const struct reef_request *request);

/* --- task.c --- */

/* Run a function in a fiber of the broker's own; stop waits for its end.
 * -ENOMEM, -ENOSPC. */
int broker_spawn(struct reef_broker *broker,
		 void (*run)(struct reef_broker *broker, uint32_t number),
		 uint32_t number);
/* Wait, in any fiber of the broker, until time has passed, or for broker_wake.
 * 0: what is waited for may have come.  -ECANCELED: the broker stops.
 * -REEF_EHOSTDEAD. */
int broker_sleep(struct reef_broker *broker, uint64_t duration_ns);
/* Wake every fiber that sleeps. */
void broker_wake(struct reef_broker *broker);
/* Wait until all fibers have ended; stopping is set. */
void broker_tasks_end(struct reef_broker *broker);

/* --- commit.c --- */

/* Find out whether this repeats the session's last mutation. 0: it is new.  1:
 * it does, and *result is what came of it: the id (SPACE_ADD, EXTENT_ADD,
 * USER_ADD, NODE_ADD), the generation (NAME_BIND, NAME_REPLACE), the era
 * (SPACE_ERA), the value (SETTING), else 0.  -EINVAL: no number, or the last
 * one made no record of this type.  -ESTALE: an older one. Never waits. */
int broker_find_repeated(const struct reef_broker *broker,
			 const struct reef_request *request, uint16_t type,
			 uint64_t *result);

/* Check, append, apply; never waits. *sequence (may be NULL) is what to wait
 * for. request: whose mutation it is, or NULL for the broker's own; of the
 * records of a request only the one that settles it names the request, and it
 * is the last. Errors: state's; -EALREADY: a repetition came first meanwhile;
 * -REEF_EFENCED: the session has ended; or the journal's (then health is
 * set). */
int broker_commit(struct reef_broker *broker, struct reef_record *record,
		  const struct reef_request *request, uint64_t *sequence);
/* Wait until it is in the journal for good; nobody may hear of it yet. */
int broker_wait_journal(struct reef_broker *broker, uint64_t sequence);
/* Wait until it is that, and confirmed. */
int broker_wait_durable(struct reef_broker *broker, uint64_t sequence);
/* Commit, and wait until it is durable and confirmed. */
int broker_commit_wait(struct reef_broker *broker, struct reef_record *record,
		       const struct reef_request *request);

/* --- confirm.c --- */

/* Note what the journal had, after it was read. */
int broker_confirm_open(struct reef_broker *broker);
/* Journal that, before the epoch of this start. */
int broker_confirm_begin(struct reef_broker *broker);
/* Start the fiber that looks whether the broker is sure. */
int broker_confirm_start(struct reef_broker *broker);
/* A record was applied that may have changed who the witnesses are. */
void broker_council_update(struct reef_broker *broker);
/* False: too many changes of witnesses wait to be confirmed. */
bool broker_council_has_room(const struct reef_broker *broker);
/* Wait a moment until a new life of that node may be noted: confirm.c, 1.
 * -REEF_EINDOUBT; and as broker_wait_confirmed. */
int broker_council_await(struct reef_broker *broker, uint32_t id);
/* Ask witnesses for what is waited for; never waits. */
void broker_confirm_ask(struct reef_broker *broker);
/* Wait until a sequence that is durable is confirmed. -ETIMEDOUT, -ECANCELED,
 * -REEF_EHOSTDEAD, or the broker's health. */
int broker_wait_confirmed(struct reef_broker *broker, uint64_t sequence,
			  uint64_t timeout_ns);
/* Have the witnesses confirm, from now on, that nobody else was chosen.
 * -ETIMEDOUT; and as above. */
int broker_confirm_now(struct reef_broker *broker);
/* True: enough nodes were heard lately. */
bool broker_is_sure(struct reef_broker *broker);
/* Wait a moment until it is. */
bool broker_await_sure(struct reef_broker *broker);
/* Judge by what a node that registers has followed and confirmed.
 * -REEF_EINDOUBT: it cannot be ours.  -REEF_EOLDER: (3). */
int broker_confirm_register(struct reef_broker *broker, uint32_t node,
			    const struct reef_ask_node_register *ask);
/* True if without this node too few witnesses are left to confirm anything. */
bool broker_is_needed(struct reef_broker *broker, uint32_t id);
/* An operator vouches for a node that was removed. */
void broker_witness_forget(struct reef_broker *broker, uint32_t id);

/* --- table.c --- */

/* Make zeroed memory that this fabric can expose. */
int broker_memory_create(struct reef_fabric *fabric, uint64_t size,
			 bool read_only, struct reef_memory **out);
/* Take back and free memory after every link has ended. */
void broker_memory_retire(struct reef_fabric *fabric,
			  struct reef_region *region,
			  struct reef_memory *memory);
/* Make the table and fill it from the state, all of which is durable. */
int broker_table_open(struct reef_broker *broker);
void broker_table_close(struct reef_broker *broker);
/* Publish what the state says of a session, or of the pool epoch, once that is
 * durable: it waits. */
int broker_publish_session(struct reef_broker *broker, uint32_t session);
int broker_publish_pool_epoch(struct reef_broker *broker);
/* The pool epoch that is published. */
uint64_t broker_published_pool_epoch(const struct reef_broker *broker);
/* Publish the broker's epoch; 0 while it is not sure. */
void broker_publish_broker_epoch(struct reef_broker *broker);
/* Show that the broker does not stand still. */
void broker_publish_beat(struct reef_broker *broker);
/* Publish reclaim_epoch, safe_epoch, hurry_ns, and what comes back. */
void broker_publish_reclaim(struct reef_broker *broker);
/* Publish that there is more memory than before, or more of it may be used:
 * whoever waits for some asks again. */
void broker_memory_came(struct reef_broker *broker);
/* Have a session ask for what is new: change its notice word, send the note. */
void broker_notice_session(struct reef_broker *broker,
			   struct broker_session *session);
/* Notice every session that opened a space that changed or went, which is
 * applied. */
void broker_notice_space(struct reef_broker *broker, uint32_t space);

/* --- changes.c --- */

void broker_changes_begin(struct reef_broker *broker);
uint64_t broker_space_version(struct reef_broker *broker, uint32_t space);
void broker_version_forget(struct reef_broker *broker, uint32_t space);
/* Stamp an extent whose row says something else from now on. */
void broker_extent_changed(struct reef_broker *broker, uint32_t space,
			   uint32_t extent);
/* Stamp what a record changes that is about to be applied. */
void broker_record_changes(struct reef_broker *broker,
			   const struct reef_record *record);
/* Find the numbers of a space's extents that changed since a version.  -ERANGE:
 * they are too many, or that is not known any more. */
int broker_changes_since(const struct reef_broker *broker, uint32_t space,
			 uint64_t version, uint32_t numbers[BROKER_TOLD_MAX],
			 uint32_t *count);

/* --- sessions.c, lease.c --- */

struct broker_session *broker_session_find(struct reef_broker *broker,
					   uint32_t id);
/* The session that asks.  NULL: none, or it has ended. */
struct broker_session *broker_session_of(const struct reef_request *request);
/* What the session may do in a space: rights bits; its owner and the pool's
 * everything; 0: nothing, or there is no such space. */
uint8_t broker_session_rights(struct reef_broker *broker,
			      const struct broker_session *session,
			      uint32_t space);
/* Note that a session opened a space. Where it may write, that is journaled too
 * (the session uses the space), because recovery has to look there after a
 * restart as well; not for a scratch space of its own, which goes with it.
 * Never waits. */
int broker_grant(struct reef_broker *broker, struct broker_session *session,
		 uint32_t space, uint8_t rights);
/* Note that a session closed a space; it stays one that it used. */
void broker_ungrant(struct broker_session *session, uint32_t space);
/* Close a space, whose tokens are void, for all sessions but its owners'. */
void broker_ungrant_all(struct reef_broker *broker, uint32_t space);
/* The control link of a session is gone; as broker_node_link_lost. */
void broker_session_link_lost(struct reef_broker *broker,
			      struct broker_session *session);
/* Take a session from ALIVE to its end, in a fiber of its own; never waits. */
int broker_session_end(struct reef_broker *broker,
		       struct broker_session *session, const char *why);
/* Take a session that is RECOVERED from where it is found; then free it. */
void broker_session_unlink(struct reef_broker *broker,
			   struct broker_session *session);
void broker_session_free(struct reef_broker *broker,
			 struct broker_session *session);
/* Make an entry for each session that has not RECOVERED, at start; and free all
 * of them, at stop. */
int broker_sessions_open(struct reef_broker *broker);
void broker_sessions_close(struct reef_broker *broker);
/* End the sessions whose processes ended before this start, and later those
 * whose processes end before they came back; after lease.c was started. Never
 * waits.  -ENOMEM. */
int broker_sessions_end_dead(struct reef_broker *broker);
/* Start the sampler of lease.c, which runs until stop and also moves the
 * reclaim epoch, and go on with sessions that were ending already. */
int broker_lease_start(struct reef_broker *broker);
/* Take in what a session says that it did, if it was not looked at for a while;
 * now_ns 0: whenever that was. */
void broker_count_session(struct reef_broker *broker,
			  struct broker_session *session, uint64_t now_ns);
/* How long 99 of 100 calls took at the most, to a bucket; 0: there were none.
 */
uint64_t broker_counters_p99(const struct reef_counters *counters);
/* A session asks that the renewal words be read soon; never waits. */
void broker_hurry_asked_for(struct reef_broker *broker);
/* Reserve reclaim epochs that no earlier start has used. */
int broker_epochs_begin(struct reef_broker *broker);

/* --- acknowledge.c --- */

/* Wait until every session that has that space open (0: every session) has
 * acknowledged the pool epoch, which the state has, or is FENCED. Who does not
 * within its ttl is ended for that. In a fiber of the broker's own, or a
 * handler that answers later.  -ECANCELED: the broker stops.
 * -REEF_EHOSTDEAD; or as broker_wait_durable. */
int broker_epoch_wait(struct reef_broker *broker, uint64_t epoch,
		      uint32_t space);
/* Take in what a session's word says that it has acknowledged. */
void broker_note_acknowledged(struct reef_broker *broker,
			      struct broker_session *session, uint64_t epoch);
/* True if the session may have that space open; 0: any. */
bool broker_session_may_have_open(const struct broker_session *session,
				  uint32_t space);
/* The least pool epoch that somebody waits for that session to acknowledge; 0:
 * none. */
uint64_t broker_awaited_of(const struct reef_broker *broker,
			   const struct broker_session *session);

/* --- users.c --- */

/* What operators call user 0. */
#define BROKER_OWNER "owner"

/* Parse "user:<id>:<era>", in the one way to write it. */
bool broker_parse_user(const char *identity, uint32_t *user, uint32_t *era);
/* True if that is the era of the user's credential. */
bool broker_is_current_era(const struct reef_broker *broker, uint32_t user,
			   uint32_t era);
/* As `admit` of an rpc: count a link that is about to be let in.  -EDQUOT: its
 * user has as many as they may.  -EBUSY: all users have. */
int broker_admit(void *context, const char *identity);
void broker_user_link_opened(struct reef_broker *broker, uint32_t user);
void broker_user_link_closed(struct reef_broker *broker, uint32_t user);
uint32_t broker_user_links(const struct reef_broker *broker, uint32_t user);
/* An event tells, not too often, that a user was refused with -EDQUOT. */
void broker_user_refused(struct reef_broker *broker, uint32_t user);
/* End the sessions of void credentials, at start. Never waits. */
void broker_users_end_outdated(struct reef_broker *broker);
void broker_users_close(struct reef_broker *broker); /* frees all */

/* A session of that user ended, and others had waited for memory that it held
 * back: users.c, 5. was_alive: not by its lease. Never waits. */
void broker_user_strike(struct reef_broker *broker, uint32_t user,
			uint64_t ttl_ns, bool was_alive);
uint32_t broker_user_pins(const struct reef_broker *broker, uint32_t user);
/* False while new sessions of that user have to wait for that. */
bool broker_user_may_join(const struct reef_broker *broker, uint32_t user);
/* Commit the next era of a user's credential: the present one is void. */
int broker_user_void(struct reef_broker *broker, uint32_t user,
		     const struct reef_request *request, uint32_t *era);

/* --- expel.c --- */

/* Note that a session is told keys of a space. */
void broker_user_note_told(struct reef_broker *broker, uint32_t user,
			   uint32_t space);
/* Have all keys changed that a user may know; never waits. */
void broker_user_rekey(struct reef_broker *broker, uint32_t user);
/* Remove a user by force; as broker_user_remove. */
int broker_user_expel(struct reef_broker *broker,
		      const struct reef_request *request,
		      struct reef_body *answer);
void broker_tellings_close(struct reef_broker *broker); /* frees all */

/* --- rekey.c, settle.c, room.c --- */

/* The broker stops: answer those that wait and have no fiber. */
void broker_rekeys_end(struct reef_broker *broker);
void broker_settles_end(struct reef_broker *broker);
void broker_adders_end(struct reef_broker *broker);

/* --- recovery.c --- */

/* Have what a FENCED session left put in order, everywhere. 0: nothing is left.
 * -ECANCELED: the broker stops. */
int broker_session_recover(struct reef_broker *broker, uint32_t session);
/* Somebody has come who can help with that, in this space or in all (0): who
 * waits for help asks again at once. Never waits. */
void broker_helper_came(struct reef_broker *broker, uint32_t space);
/* What is STUCK in a space is tried once more; it never waits. */
void broker_recovery_retry(struct reef_broker *broker, uint32_t space);
/* A node has come back: that, in all spaces with memory there. */
void broker_recovery_node_came(struct reef_broker *broker, uint32_t node);

/* --- nodes.c --- */

struct broker_node *broker_node_find(struct reef_broker *broker, uint32_t id);
/* Call a node and wait; as reef_rpc_call. -REEF_ENOLINK: it is away. */
int broker_node_call(struct reef_broker *broker, uint32_t node, uint16_t kind,
		     const struct reef_body *body, struct reef_answer *answer);
/* Note that a session is about to be told keys of a node. */
void broker_session_note_told(struct broker_session *session, uint32_t node);
/* True if nothing is lost by giving a node up, which was due at that moment:
 * nodes.c (12). */
bool broker_may_give_up(struct reef_broker *broker, uint32_t id,
			uint64_t due_ns);
/* True if it may have been. */
bool broker_session_was_told(const struct broker_session *session,
			     uint32_t node);
/* Fence a session that has ended, at every node that it was told of; returns 0
 * once each confirmed or is DEAD, and that is durable. Retries for ever, except
 * when the broker stops (-ECANCELED), fails (its health), or its host dies
 * (-REEF_EHOSTDEAD). */
int broker_nodes_fence(struct reef_broker *broker, uint32_t session);
/* The link of a node is gone: node->peer is to be NULL when it returns. From
 * serve.c, also while stopping; must not block. */
void broker_node_link_lost(struct reef_broker *broker,
			   struct broker_node *node);
int broker_nodes_start(struct reef_broker *broker);  /* and the fiber that
						      * judges them */
void broker_nodes_close(struct reef_broker *broker); /* frees all */

/* --- spaces.c --- */

/* Remove a space with all that is in it, and let its nodes drop it: commits,
 * waits, tells. request as in broker_commit. */
int broker_space_remove(struct reef_broker *broker, uint32_t space,
			const struct reef_request *request);

/* --- save.c --- */

/* True while a space is being saved: its names and the list of its extents stay
 * what they are. */
bool broker_space_is_saving(const struct reef_broker *broker, uint32_t space);
bool broker_session_is_saving(const struct reef_broker *broker, uint32_t id);

/* --- extents.c, move.c --- */

struct broker_extent *broker_extent_find(struct reef_broker *broker,
					 uint32_t number);
int broker_extent_set_keys(struct reef_broker *broker, uint32_t number,
			   const struct reef_extent_keys *keys);
/* An extent is withdrawn from clients, or about to be. */
void broker_extent_set_closed(struct reef_broker *broker, uint32_t number);
/* A number for who closes extents and opens them again. */
static inline uint64_t broker_close_number(struct reef_broker *broker)
{
	return ++broker->close_numbers;
}
void broker_extent_forget(struct reef_broker *broker, uint32_t number);
/* Go on with the drains and moves that the state holds. */
void broker_moves_resume(struct reef_broker *broker);
/* Have all spaces looked after that have fewer copies than are wanted. */
void broker_copies_resume(struct reef_broker *broker);

/* --- status.c --- */

__attribute__((format(printf, 2, 3))) void
broker_event(struct reef_broker *broker, const char *format, ...);

/* --- requests: each kind its function, called by serve.c --- */

#define BROKER_REQUEST(name)                                                   \
	int name(struct reef_broker *broker,                                   \
		 const struct reef_request *request, struct reef_body *answer, \
		 struct reef_cursor_out *room)

BROKER_REQUEST(broker_session_open);
BROKER_REQUEST(broker_session_resume);
BROKER_REQUEST(broker_session_close);
BROKER_REQUEST(broker_session_end_request);
BROKER_REQUEST(broker_user_add);
BROKER_REQUEST(broker_user_remove);
BROKER_REQUEST(broker_user_rotate);
BROKER_REQUEST(broker_user_limit);
BROKER_REQUEST(broker_setting);
BROKER_REQUEST(broker_name_bind);
BROKER_REQUEST(broker_name_replace);
BROKER_REQUEST(broker_name_unbind);
BROKER_REQUEST(broker_name_lookup);
BROKER_REQUEST(broker_name_list);

BROKER_REQUEST(broker_settle);
BROKER_REQUEST(broker_space_open);
BROKER_REQUEST(broker_space_close);
BROKER_REQUEST(broker_space_extents);
BROKER_REQUEST(broker_space_drop);
BROKER_REQUEST(broker_space_quota);
BROKER_REQUEST(broker_space_revoke);
BROKER_REQUEST(broker_space_forget);
BROKER_REQUEST(broker_space_token);
BROKER_REQUEST(broker_space_save);
BROKER_REQUEST(broker_space_restore);
BROKER_REQUEST(broker_extent_add);
BROKER_REQUEST(broker_extent_remove);
BROKER_REQUEST(broker_node_add_request);
BROKER_REQUEST(broker_node_register);
BROKER_REQUEST(broker_node_extents);
BROKER_REQUEST(broker_node_ready);
BROKER_REQUEST(broker_node_pulse);
BROKER_REQUEST(broker_node_drain);
BROKER_REQUEST(broker_node_reclaim);
BROKER_REQUEST(broker_node_remove);
BROKER_REQUEST(broker_status);
BROKER_REQUEST(broker_time);
BROKER_REQUEST(broker_list);
BROKER_REQUEST(broker_janitor);

#endif
