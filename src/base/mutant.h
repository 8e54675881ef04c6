/* mutant.h - deliberate violations, to find out whether the tests can fail.
 *
 * Each mutant breaks one rule of one room. A test switches one on, and fails
 * unless some check of its own finds it.
 *
 * (1) The code of a mutant stands where the rule is kept, behind REEF_MUTATED.
 * (2) That is constant false unless REEF_MUTANTS is 1, as it is in what tests
 *     link (src/meson.build): no code and no symbol of a mutant is shipped.
 * (3) At most one is on in a process, for all its threads.
 * (4) No struct depends on REEF_MUTANTS: the benches are built without it, and
 *     tests link them.
 *
 * Thread: any. */
#ifndef REEF_BASE_MUTANT_H
#define REEF_BASE_MUTANT_H

#include <stdatomic.h>
#include <stdbool.h>

/* clang-format off */
#define REEF_MUTANTS_OF_SIM(X) \
	X(SIM_F1_TWICE, "Now and then an FAA happens twice.") \
	X(SIM_F1_LOST_SEND, "A SEND is confirmed and never arrives.") \
	X(SIM_F2_TORN_WORD, "A word is torn at a byte.") \
	X(SIM_F3A_OVERTAKE, "An operation overtakes a WRITE before it.") \
	X(SIM_F3B_EARLY_READ, "A READ overtakes what is before it.") \
	X(SIM_F3C_UNORDERED, "REEF_ORDERED is ignored.") \
	X(SIM_F3_GO_ON, "What follows a failed operation still happens.") \
	X(SIM_F4_EARLY_DONE, "A completion comes before the effect.") \
	X(SIM_F5_LATE, "A delivery happens after the next link is up.") \
	X(SIM_F5_CLAIM_DONE, "Lost operations are reported as done.") \
	X(SIM_F6_SPLIT, "Atomics are split inside a domain, too.") \
	X(SIM_F6_ANY_DOMAIN, "An attach from another domain is let in.") \
	X(SIM_F7_LATE, "Effects happen after the fence is confirmed.") \
	X(SIM_F7_READMIT, "A fenced session may connect again.") \
	X(SIM_F8_BOUNDS, "Target and library accept one byte more.") \
	X(SIM_F8_WITHDRAWN, "A withdrawn key still works.") \
	X(SIM_F8_WRITABLE, "The target lets read-only memory be written.") \
	X(SIM_F8_READ_KEY_WRITES, "The target lets a read key write.") \
	X(SIM_F9_FORGET, "FLUSH does nothing and says 0.")

#define REEF_MUTANTS_OF_FABRIC(X) \
	X(FABRIC_END_LATE_HELLO, "F10: a late hello is let in.") \
	X(FABRIC_END_NEWER, "F10: newer links are ended, too.") \
	X(FABRIC_END_EARLY, "F10: the end is confirmed before it has come.")

/* Of shm alone: the simulator has no processes. */
#define REEF_MUTANTS_OF_SHM(X) \
	X(SHM_PIDFD_LATE, "Who watches hears of a process that is in already.")

#define REEF_MUTANTS_OF_BROKER(X) \
	X(BROKER_COUNTS_BELIEVED, "Counters of sessions are added as told.") \
	X(BROKER_ONE_SAMPLE, "A lease is judged by one sample.") \
	X(BROKER_EARLY_FENCED, "FENCED comes before all nodes confirmed.") \
	X(BROKER_EARLY_ANSWER, "A call is answered before it is durable.") \
	X(BROKER_EARLY_PUBLISH, "The table is published before the journal.") \
	X(BROKER_OLD_EPOCH, "A start does not raise the broker's epoch.") \
	X(BROKER_NO_GRACE, "After a start leases count as seen long ago.") \
	X(BROKER_EARLY_MOVE, "A move copies before the source is closed.") \
	X(BROKER_FORGET_REQUEST, "A repeated request is done again.") \
	X(BROKER_EARLY_SAFE, "R8: safe_epoch ignores sessions.") \
	X(BROKER_HASTY_LEASE, "Every look at a lease is a sample.") \
	X(BROKER_SETTLE_ONE, "Of several lost links only one is ended.") \
	X(BROKER_NO_JANITOR, "The janitor is not asked.") \
	X(BROKER_UNCONFIRMED, "A change is told that no node confirmed.") \
	X(BROKER_FORGETFUL, "Who forgot what it confirmed is a witness still.") \
	X(BROKER_FENCE_FORGETS, "A start forgets who was told of which nodes.") \
	X(BROKER_FENCE_LAST, "A fence goes to the node alone that came last.") \
	X(BROKER_REMOVAL_UNTOLD, "An extent that was removed is not told of.") \
	X(BROKER_ACK_MISSING, "Who is EXPIRED counts as having let go.") \
	X(BROKER_ACK_IN_BITS, "Who lets go of a little has time anew.") \
	X(BROKER_EXCUSES, "A node that comes and goes excuses for ever.") \
	X(BROKER_LIFE_EARLY, "A new life does not wait for the clients of the old.") \
	X(BROKER_ZEROS, "An extent that its node has not is made anew.") \
	X(BROKER_TWIN_ZEROS, "A copy under way is made anew, too.") \
	X(BROKER_FOREIGN_DROP, "What a broker does not know is dropped.") \
	X(BROKER_EARLY_OPEN, "A copy is opened before all have let go.") \
	X(BROKER_NO_REKEY, "A copy that is left is opened by its old keys.") \
	X(BROKER_COPY_OPEN, "A second copy is made of what is in use.") \
	X(BROKER_CROSS_PULL, "The arbiter is moved from the primary.") \
	X(BROKER_OLD_COPY, "A copy that was given up is taken again.") \
	X(BROKER_KEPT_FIRST, "Of two nodes the one that keeps is given up.") \
	X(BROKER_HASTY_MISS, "Of two silent nodes one is given up soon.") \
	X(BROKER_GONE_UNTOLD, "Nobody is told which nodes are gone.") \
	X(BROKER_CALLS_KEPT, "Nodes that are gone are waited for.") \
	X(BROKER_BLAME_SILENCE, "Who waits for a silent node is ended.") \
	X(BROKER_BLAME_FAILOVER, "Who waits for a failover is ended.") \
	X(BROKER_MIXED_IMAGE, "A space is saved while others change it.") \
	X(BROKER_FORGET_FAILING, "A failover is not journaled as one.") \
	X(BROKER_PIN_UNMISSED, "Who is behind is ended, missed or not.")

#define REEF_MUTANTS_OF_NODE(X) \
	X(NODE_STALE_EPOCH, "An older broker is obeyed.") \
	X(NODE_NO_FENCE, "FENCE is confirmed, and nothing is done.") \
	X(NODE_SAME_LIFE, "A node comes back from the dead as it was.") \
	X(NODE_GHOSTS_LEFT, "Who has an earlier life's memory is not ended.") \
	X(NODE_DIRTY, "Memory is lent again without being cleared.")

#define REEF_MUTANTS_OF_CLIENT(X) \
	X(CLIENT_AWAY_STALE, "Links to a node that is AWAY are kept.") \
	X(CLIENT_CONNECT_ON, "A node that is gone is connected to.") \
	X(CLIENT_ACK_EARLY, "A view is acknowledged before the grace.") \
	X(CLIENT_SAFE_FIRST, "safe_epoch is believed without its view.") \
	X(CLIENT_FENCED_EARLY, "FENCED is believed without its pool epoch.") \
	X(CLIENT_STALE_EXTENT, "A handle never looks at the notice word.") \
	X(CLIENT_REPEAT, "An operation in doubt is repeated.") \
	X(CLIENT_NO_PIN, "The newest epoch is announced always.") \
	X(CLIENT_YOUNG_PIN, "Of two cohorts the younger one's is announced.") \
	X(CLIENT_PIN_DROPPED, "R8: what is unsettled holds no epoch back.") \
	X(CLIENT_SKIP_CLOSED, "A recovery passes over what is closed for now.")

#define REEF_MUTANTS_OF_COPIES(X) \
	X(COPIES_PRIMARY_FIRST, "The primary decides before the arbiter.") \
	X(COPIES_ONE_PHASE, "WRITEs and the arbiter's CAS at once.") \
	X(COPIES_NO_HELP, "Who loses at the arbiter does not help.") \
	X(COPIES_TELL_PENDING, "A value is told before the primary has it.") \
	X(COPIES_WRITE_ONE, "A WRITE goes to the primary alone.") \
	X(COPIES_SETTLE_PRIMARY, "A CAS in doubt is repeated at the primary.") \
	X(COPIES_UNPINNED, "The epoch is not pinned between the phases.") \
	X(COPIES_READ_EXPIRED, "A READ counts although the lease is over.") \
	X(COPIES_ADD_TWICE, "Another's sum is taken for one's own.") \
	X(COPIES_WIN_TWICE, "Another's operand is taken for one's own.") \
	X(COPIES_GUESS_COMPARE, "A header is guessed, and not READ.")

#define REEF_MUTANTS_OF_HEAP(X) \
	X(HEAP_EARLY_REUSE, "Rule 7: nothing waits in limbo.") \
	X(HEAP_CLAIM_GENERATION, "Rule 1: claims do not count.") \
	X(HEAP_LATE_HEADER, "Rule 4: published before its header.") \
	X(HEAP_ADOPT_ALIVE, "Rule 8: nobody asks whether it is FENCED.") \
	X(HEAP_FREE_WRITE, "Rule 5: a WRITE instead of a CAS frees.") \
	X(HEAP_ABANDON_UNJUDGED, "Rule 8: what waits is given away.") \
	X(HEAP_FREE_KEPT, "Rule 8: a KEPT block ends with its session.") \
	X(HEAP_END_EARLY, "Rule 8: done is said before all is judged.") \
	X(HEAP_SHRINK_BLIND, "Rule 10: extents go that others have chunks of.") \
	X(HEAP_SCAN_STAGED, "Rule 11: blocks being prepared are asked about.")

#define REEF_MUTANTS_OF_LOCK(X) \
	X(LOCK_UNLOCK_BY_WRITE, "A WRITE instead of a CAS unlocks.") \
	X(LOCK_BREAK_AT_EXPIRED, "A lock is broken before the fence.") \
	X(LOCK_STALE_TICKET, "A message is taken at its word.") \
	X(LOCK_WAKE_BEFORE_WORD, "The next one is woken, then H changes.") \
	X(LOCK_READER_LATE, "A reader reads H, then takes its slot.") \
	X(LOCK_NO_REREAD, "H is freed without being read again.") \
	X(LOCK_SKIP_UNNAMED, "Holes are passed without poison.") \
	X(LOCK_FORGET_INHERITED, "A death is not told to the one after.") \
	X(LOCK_IGNORE_LEFT, "A grant does not look who left.") \
	X(LOCK_FREE_AND_WAKE, "H becomes free, then who sleeps is looked for.")

#define REEF_MUTANTS_OF_BARRIER(X) \
	X(BARRIER_NO_LAST_STEP, "A member passes without the last message.") \
	X(BARRIER_OLD_ROUND, "A message of any round counts.") \
	X(BARRIER_ANY_GROUP, "Messages of other members count.") \
	X(BARRIER_EXPIRED, "Who is only EXPIRED is struck off.") \
	X(BARRIER_JOINER_BEGINS, "Any lowest member may begin a round.") \
	X(BARRIER_BLIND_BEGIN, "A round begins by FAA, whatever the version.") \
	X(BARRIER_NO_HELP, "A dead member's change is left undone.") \
	X(BARRIER_NO_MARK, "No mark is left for who lost messages.")

#define REEF_MUTANTS_OF_LEASE(X) \
	X(LEASE_EXPIRED, "A lease is taken over before the fence.") \
	X(LEASE_SAME_TERM, "A lease is taken without a new term.") \
	X(LEASE_NO_MARGIN, "A lease lapses as if no clock drifted.") \
	X(LEASE_LATE_RENEWAL, "A lease that lapsed meanwhile is renewed.") \
	X(LEASE_LATE_COUNT, "A lease counts from the renewal's end.") \
	X(LEASE_OLD_SIGHT, "It lapses by a look that began too early.") \
	X(LEASE_DOUBT_IS_DONE, "What is in doubt counts as done.") \
	X(LEASE_NO_CHECKSUM, "The record's checksum is not looked at.") \
	X(LEASE_NO_FLOOR, "The floor of terms is never raised.") \
	X(LEASE_ENLIST_LATE, "A waiter looks, then makes itself known.") \
	X(LEASE_LOST_IS_HELD, "A lease whose node died is held on.") \
	X(LEASE_LOST_AT_ONCE, "A lost lease is dropped without a wait.") \
	X(LEASE_TERMS_ANEW, "A new lease's tokens begin at 1 again.")

#define REEF_MUTANTS_OF_CLOCK(X) \
	X(CLOCK_NO_CEILING, "A time is never compared with the ceiling.") \
	X(CLOCK_RAISE_LATE, "A time is given, then the ceiling raised.") \
	X(CLOCK_OLD_WORD, "A new word starts where the lost one was seen.") \
	X(CLOCK_NO_ERA, "Any ceiling will do, whoever raised it.") \
	X(CLOCK_NO_WAIT, "A new word starts while the lost one is drawn from.")

#define REEF_MUTANTS_OF_HASH(X) \
	X(HASH_NO_REREAD, "An insert is confirmed without a second look.") \
	X(HASH_NO_TAG, "Tags do not count; entries are reused at once (R8).") \
	X(HASH_TORN_ABSENT, "A torn or changing entry is not there.") \
	X(HASH_NO_FREEZE, "A split does not freeze.") \
	X(HASH_NO_INTENT, "Children are LEAF before they are filled.") \
	X(HASH_EARLY_REUSE, "A free does not wait for readers.") \
	X(HASH_RECUR, "R9: emptied slots are all the same.") \
	X(HASH_LATE_MARK, "The slot is written first, then live.")

#define REEF_MUTANTS_OF_TREE(X) \
	X(TREE_NO_MARK, "A record is superseded without a mark.") \
	X(TREE_LATE_MARK, "The slot is taken first, then the mark set.") \
	X(TREE_LATE_ALIVE, "A block is superseded, then says so.") \
	X(TREE_SKIP_SLOT, "Slots are not used in order.") \
	X(TREE_FENCE_IGNORED, "Nobody goes right at a high fence.") \
	X(TREE_EARLY_REUSE, "A free does not wait for readers.") \
	X(TREE_LOW_FIRST, "A separator is put in before its node is.") \
	X(TREE_ID_APART, "A superseded block keeps its id.") \
	X(TREE_MISS_UNPROVED, "Slots count whatever the id says.") \
	X(TREE_STALE_SOURCE, "What changes while it is frozen is lost.") \
	X(TREE_REVIVE_EMPTY, "A delete forgets the slot's key.") \
	X(TREE_HEAD_REUSED, "Heads do not wait for readers.") \
	X(TREE_STAMP_LOST, "A fold leaves the stamp out.") \
	X(TREE_THAW, "What is frozen is changed.") \
	X(TREE_TORN_ABSENT, "What is not whole is not there.") \
	X(TREE_JOIN_UNPROVED, "A node that is JOINING is always the node.") \
	X(TREE_JOIN_THAWED, "A node that is JOINING is not frozen.") \
	X(TREE_JOIN_ALONE, "A node that has joined another keeps its id.") \
	X(TREE_JOIN_RIGHT, "A node that was joined ends where it did.") \
	X(TREE_JOIN_TWICE, "Nobody looks whether a join is done.") \
	X(TREE_FETCH_UNPROVED, "A scan believes leaves as they were.") \
	X(TREE_OLD_IMAGE, "Slots are changed as another call saw them.")

#define REEF_MUTANTS_OF_STALE_TREE(X) \
	X(TREE_JOIN_LOW, "A node is believed wherever it begins.")

/* By what is left, or lies in a block: test_tree_rules. */
#define REEF_MUTANTS_OF_TREE_RULES(X) \
	X(TREE_FOLD_LIVE, "Entries that a fold took over are not freed.") \
	X(TREE_LARGE_LIVE, "A record's entry stays when a slot has its key.") \
	X(TREE_BASE_NO_ID, "The crc of an interval is without the id.")

#define REEF_MUTANTS_OF_NEAR_TREE(X) \
	X(TREE_NEAR_UNPROVED, "In place: nobody looks whether it was so.") \
	X(TREE_NEAR_MARK, "In place: marks mean nothing.") \
	X(TREE_NEAR_FENCE, "In place: a key is in whatever leaf one comes to.") \
	X(TREE_NEAR_DEAD, "In place: what was deleted is there.") \
	X(TREE_NEAR_UNSORTED, "In place: slots are told as they come.")

#define REEF_MUTANTS_OF_MAP(X) \
	X(MAP_NO_REMOVE, "An entry expires by one's own clock alone.") \
	X(MAP_RANDOM, "Whatever was met is evicted.")

#define REEF_MUTANTS_OF_TXN(X) \
	X(TXN_COMMIT_FIRST, "The status is set before the lines are.") \
	X(TXN_NO_LIVE, "Entries that go stay live until it is committed.") \
	X(TXN_READ_UNTAKEN, "Keys that are only read are not taken.") \
	X(TXN_NO_SECOND_READ, "What was read is not looked at again.") \
	X(TXN_VALIDATE_EARLY, "Each key is looked at again at once.") \
	X(TXN_PENDING_OLD, "A status is not looked at again.") \
	X(TXN_ABORT_OTHERS, "A slot is resolved, its status undecided.") \
	X(TXN_RESOLVE_OLD, "Resolved is always the old word.") \
	X(TXN_REUSE_EARLY, "A block is reused at once.") \
	X(TXN_CARRY_UNMARKED, "A split freezes intents as they are.") \
	X(TXN_LATE_LIVE, "The status is not looked at in a new epoch.") \
	X(TXN_DROP_INTENT, "A drop or split does not decide intents.") \
	X(TXN_NO_PHANTOM, "Keys that have come into a range do not count.") \
	X(TXN_ENTRY_EARLY, "A new entry is read before its status.") \
	X(TXN_HEAD_TWICE, "A head in doubt is written once more.") \
	X(TXN_STATUS_KEPT, "Who lets keys go to wait keeps its status.")

/* Those that a unit test finds. */
#define REEF_MUTANTS_OF_TXN_CALLS(X) \
	X(TXN_ABORT_BARE, "An abort leaves entries that are not live.") \
	X(TXN_COPY_LIVE, "What a copy takes the place of stays live.") \
	X(TXN_GHOST_REMOVED, "Who meets a ghost removes it.") \
	X(TXN_RESOLVE_STALE, "A slot is resolved where it was, in any epoch.") \
	X(TXN_IS_LIVE_PENDING, "What a transaction has is not live.") \
	X(TXN_REUSE_DOUBT, "A block is freed with a take in doubt.") \
	X(TXN_TAG_ROUND, "A slot whose tag comes round is not frozen.") \
	X(TXN_GHOST_FREED, "A ghost is freed though a slot names it.") \
	X(TXN_GUESS_BLIND, "A slot is its key's by its print alone.")

#define REEF_MUTANTS_OF_IMAGE(X) \
	X(KEEP_MIXED_IMAGE, "An image comes back that is not clean.")          \
	X(KEEP_CLEAN_TWICE, "A clean image comes back a second time.")         \
	X(KEEP_PIDFDS_LOST, "A second holder is not told of processes.")       \
	X(KEEP_PIDFDS_LAST, "A second holder has memory before processes.")    \
	X(KEEP_MAPPERS_LEFT, "Who has memory mapped is left when it is saved.") \
	X(KEEP_IMAGE_UNSPENT, "A holder's memory leaves an image clean.")      \
	X(KEEP_RELEASE_FIRST, "A holder gives up before the image is saved.")

#define REEF_MUTANTS_OF_LOG(X) \
	X(LOG_WORD_FIRST, "Rule 1: the word is set before its cell.") \
	X(LOG_TAIL_TRUSTED, "Rule 1: a WRITE instead of a CAS sets a word.") \
	X(LOG_FILL_WRITE, "Rule 1: a hole is made by a WRITE.") \
	X(LOG_ROW_EARLY, "Rule 2: the head of a row is set first.") \
	X(LOG_GENERATION_IGNORED, "Rule 3: a number counts in any segment.") \
	X(LOG_THREE_OPEN, "Rule 4: older segments keep their zeros.") \
	X(LOG_TAIL_UNSEALED, "Rule 5: a new tail leaves the old zeros.") \
	X(LOG_GUESS, "Rule 6: an appender draws several numbers ahead.") \
	X(LOG_HOLE_SKIPPED, "Rule 7: a reader passes by what is not decided.") \
	X(LOG_HOLE_FIXED, "Rule 7: the bound does not grow.") \
	X(LOG_WAKE_EARLY, "Rule 8: places are read before the word is set.") \
	X(LOG_STALE, "Rule 9: what was remembered is true for ever.") \
	X(LOG_TRIM_NOW, "Rule 9: what is trimmed is reused at once.") \
	X(LOG_TRIM_AHEAD, "Rule 9: a trim goes beyond the tail.") \
	X(LOG_SHARD_EARLY, "Rule S1: a shard passes on while its owner lives.") \
	X(LOG_COUNT_FIRST, "Rule S1: the count is set before its cells.") \
	X(LOG_SHARD_OTHER_BYTES, "Rule S2: after a doubt come other bytes.") \
	X(LOG_CUT_BACK, "Rule S3: counts are older than the last cut.") \
	X(LOG_CUT_CELL, "Rule S4: cutters share the memory of a cut.") \
	X(LOG_SHARD_UNJOINED, "Rule S5: nobody notes since when a shard is in.") \
	X(LOG_CUT_TWICE, "Rule S7: a restart takes in what was counted before.") \
	X(LOG_SHARD_FREED, "Rule S8: a trim frees what was full after its cut.") \
	X(LOG_SLEEP_UNMARKED, "Rule S9: who sleeps marks no shard.")

#define REEF_MUTANTS_OF_READER(X) \
	X(READER_CLAIM_LATE, "Rule 4: an entry is given, claimed or not.") \
	X(READER_DONE_WRITE, "Rule 4: an acknowledgement is a WRITE.") \
	X(READER_BASE_AHEAD, "Rule 1: base passes by what is claimed.") \
	X(READER_TAKE_EXPIRED, "Rule 5: a claim ends with a lease.") \
	X(READER_HOLE_LEFT, "Rule 6: nobody acknowledges holes.") \
	X(READER_KEPT, "A reader that is closed keeps its claims.")

#define REEF_MUTANTS_OF_FILE(X) \
	X(FILE_OLD_TABLE, "A word of another epoch is good for a WRITE.") \
	X(FILE_CUT_EARLY, "A shrink takes chunks away before the epoch ends.") \
	X(FILE_LONGER_EARLY, "A file that is SHRINKING becomes longer.") \
	X(FILE_THAW_EARLY, "What is FROZEN is written to in its epoch.") \
	X(FILE_APPEND_SHARED, "A place for an append may be another's, too.") \
	X(FILE_RENAME_TWICE, "A rename gives the new name, then takes the old.") \
	X(FILE_FORMER_STAYS, "A file that another was renamed over stays.") \
	X(FILE_SCRATCH_OPEN, "A scratch file's end is not told.") \
	X(FILE_INTENT_LEFT, "A dead client's rename is left as it is.")
/* Of a rename that holds the file whose place it takes. */
#define REEF_MUTANTS_OF_HELD(X) \
	X(FILE_HELD_FIRST, "A file loses its name before another has it.") \
	X(FILE_HELD_DELETED, "A file that is to be held is deleted.") \
	X(FILE_TICKET_LEFT, "A ticket that holds nothing stays.") \
	X(FILE_HELP_UNSEEN, "A rename that another ended has not happened.") \
	X(FILE_NOBODY_AT_ONCE, "A name is nobody's after one look.")
/* In folders of them. */
#define REEF_MUTANTS_OF_FOLDER(X)                                              \
	X(FOLDER_GATE_UNSEEN, "Who puts a file in a folder trusts it is there.")

#define REEF_MUTANTS_OF_PAGES(X) \
	X(PAGES_FILL_BLIND, "Rule 2: a fill is kept whatever is there.") \
	X(PAGES_WRITE_BARE, "Rule 3: a write leaves no marker before it.") \
	X(PAGES_WRITE_AFTER, "Rule 3: a write is told before the cache has it.") \
	X(PAGES_MARK_FOREVER, "Rule 4: a marker outlasts its session.") \
	X(PAGES_MARKER_EVICTED, "Rule 3: a writer's marker may be evicted.") \
	X(PAGES_GENERATION_CACHED, "Rule 1: a generation is remembered.") \
	X(PAGES_RESUME_SILENT, "Rule 4: a write that lost its marker is told.") \
	X(PAGES_KEY_SHORT, "Rule 5: an inode that is used again is the same.") \
	X(PAGES_TRUNCATE_FORGET, "Rule 6: a file that is cut keeps its pages.") \
	X(PAGES_SEAT_IGNORED, "Rule 7: any machine writes.") \
	X(PAGES_NOTE_LOOSE, "Rule 8: a note counts for any generation.")

#define REEF_MUTANTS_ALL(X) \
	REEF_MUTANTS_OF_SIM(X) \
	REEF_MUTANTS_OF_FABRIC(X) \
	REEF_MUTANTS_OF_SHM(X) \
	REEF_MUTANTS_OF_BROKER(X) \
	REEF_MUTANTS_OF_NODE(X) \
	REEF_MUTANTS_OF_IMAGE(X) \
	REEF_MUTANTS_OF_CLIENT(X) \
	REEF_MUTANTS_OF_COPIES(X) \
	REEF_MUTANTS_OF_HEAP(X) \
	REEF_MUTANTS_OF_LOCK(X) \
	REEF_MUTANTS_OF_BARRIER(X) \
	REEF_MUTANTS_OF_LEASE(X) \
	REEF_MUTANTS_OF_CLOCK(X) \
	REEF_MUTANTS_OF_HASH(X) \
	REEF_MUTANTS_OF_TREE(X) \
	REEF_MUTANTS_OF_STALE_TREE(X) \
	REEF_MUTANTS_OF_TREE_RULES(X) \
	REEF_MUTANTS_OF_NEAR_TREE(X) \
	REEF_MUTANTS_OF_MAP(X) \
	REEF_MUTANTS_OF_TXN(X) \
	REEF_MUTANTS_OF_TXN_CALLS(X) \
	REEF_MUTANTS_OF_LOG(X) \
	REEF_MUTANTS_OF_READER(X) \
	REEF_MUTANTS_OF_FILE(X) \
	REEF_MUTANTS_OF_HELD(X) \
	REEF_MUTANTS_OF_FOLDER(X) \
	REEF_MUTANTS_OF_PAGES(X)
/* clang-format on */

/* The numbers of a list, for an array; and how many they are. */
#define REEF_MUTANT_NUMBER(name, text) REEF_MUTANT_##name,
#define REEF_MUTANT_ONE(name, text) +1

enum reef_mutant {
	REEF_MUTANT_NONE,
	REEF_MUTANTS_ALL(REEF_MUTANT_NUMBER) REEF_MUTANT_COUNT
};

#if REEF_MUTANTS

/* Switch that one on instead of the one before; NONE: all are off. */
void reef_mutate(enum reef_mutant mutant);
enum reef_mutant reef_mutant_now(void);
/* The name of a mutant in the list ("SIM_F1_TWICE"), and what it does wrong. */
const char *reef_mutant_name(enum reef_mutant mutant);
const char *reef_mutant_text(enum reef_mutant mutant);
/* NONE: no mutant has that name. */
enum reef_mutant reef_mutant_named(const char *name);

extern _Atomic unsigned reef_mutant_on;
#define REEF_MUTATED(name)                                                     \
	__builtin_expect(                                                      \
		atomic_load_explicit(&reef_mutant_on, memory_order_relaxed) == \
			REEF_MUTANT_##name,                                    \
		false)

#else

/* The name is read, so that one which is not in the list does not build. */
#define REEF_MUTATED(name) ((void)REEF_MUTANT_##name, false)

#endif

#endif
