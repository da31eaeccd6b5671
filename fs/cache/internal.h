/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The inside of the cache. Each part has a struct with its fields here and a file with its
 * functions; the other parts call those.
 *
 *	access.c	what readers do: opens, READs, closes, and what the policy says to it
 *	versions.c	what the tree tells: files come, change and go; slots
 *	fetch.c		one fetch: its states
 *	start.c		which fetches and ranges start next
 *	range.c		files that are too large to be fetched whole
 *	passing.c	what leaves the kernel, at once or when its readers have closed it
 *	budget.c	bytes
 *	waits.c		how long readers wait, and what the source gives meanwhile
 *	probe.c		whether the kernel still has what is resident
 *	numbering.c	the ids that trainers use
 *	hints.c		jobs, scores, orders, pins, capacity, policy
 *	warm.c		files that are to be made resident
 *	ratings.c	what files are worth to a store that keeps some at hand
 *	young.c		versions that are too young to be kept
 *	access_log.c	accesses as they happen
 *	watch.c		who reads what, to recognise trainings by
 *	epochs.c	a bounded record of epochs; history.c puts it together and copies it
 *	report.c	figures
 *	life.c		begin and end; the clock's thread
 *	said.c		what was said, kept for a successor
 *	heirs.c		what a successor makes of what a dead daemon has left
 *	page_cache.c	the threads that reach the kernel's page cache
 *
 * Lock order: the tree's lock, then the cache's. Nothing is answered, fetched, stored or
 * dropped with the cache's lock held. Functions without the lock read the clock; those that are
 * called with it are told what time it is.
 */
#ifndef SHADE_CACHE_INTERNAL_H
#define SHADE_CACHE_INTERNAL_H

#include <errno.h>

#include "base/threads.h"
#include "cache/access_log.h"
#include "cache/budget.h"
#include "cache/cache.h"
#include "cache/epochs.h"
#include "cache/numbering.h"
#include "cache/pace.h"
#include "cache/page_cache.h"
#include "cache/waits.h"

/* --- parts: all fields under the cache's lock -------------------------------------------------*/

/* Why a fetch was begun. */
enum fetch_purpose {
	FETCH_CHECK,   /* to see whether the version is still there; brings no bytes */
	FETCH_READ,    /* a reader needs it */
	FETCH_RESTORE, /* it is resident and has lost its pages */
	FETCH_AHEAD,   /* the order will need it */
	FETCH_WARM,    /* somebody asked for it by hand */
};

/* fetch.c has the table of transitions. */
enum fetch_state {
	FETCH_WAITING,	/* for room */
	FETCH_CHECKING, /* the store is asked for the version */
	FETCH_READING,	/* the store is asked for the bytes */
	FETCH_STORING,	/* the buffer is full, and the store's thread gives it to the kernel */
	FETCH_QUEUED,	/* the buffer is full, and the page cache's thread will do that */
	FETCH_STORED,	/* the kernel has it or refused; READs are still answered from the buffer */
	FETCH_ABANDONED, /* the deadline has passed, and only the store still has it */
};

/* One fetch of one whole file, however many wait for it. Between a call of the store or the page
 * cache and its answer, `read` and `store` are theirs. */
struct fetch {
	struct cache *cache;
	struct node *node; /* held */
	uint32_t job;	   /* whose access, or whose order, began it */
	enum fetch_purpose purpose;
	enum fetch_state state;
	bool reserved;	     /* the policy has set its bytes aside: commit or cancel follows */
	bool spare;	     /* it began in the spare third of the budget */
	bool warms;	     /* the warm queue counts how it ends */
	bool young;	     /* it began when its version was young: not to be kept */
	unsigned users;	     /* who needs the buffer: whoever stores it, READs being answered */
	uint64_t warm_bytes; /* warms: what it counts for */
	uint64_t deadline_ms;
	uint64_t buffer_bytes;	 /* in the budget */
	uint64_t arriving_bytes; /* in the budget: the pages that it will fill */
	uint64_t storing_bytes;	 /* set aside by the policy, and in memory by now */
	char *path;
	void *buffer;
	size_t size;
	struct store_attr expected;
	struct store_read read;
	struct page_store store;
	struct waiter *waiters;
	struct fetch *next, *before; /* in cache->fetches; `before` of the first is the last */
	struct fetch *next_waiting, **before_waiting; /* in cache->waiting */
	struct fetch *next_start; /* between start_pick_locked() and start_submit() */
};

struct ranges {
	struct range *started;		       /* the store has them */
	struct range_file *files, **files_end; /* that have ranges waiting, in turn */
	unsigned running;
	uint64_t bytes;	     /* of their buffers, in the budget, too */
	unsigned live;	     /* of those that are started: all but what is to be given up */
	uint64_t live_bytes; /* of these */
};

#define PASSING_MAX 1024

/* A ring of files that pass through, held. Entries whose file has left meanwhile stay until their
 * turn. */
struct passing {
	struct node *nodes[PASSING_MAX];
	uint64_t since_ms[PASSING_MAX];
	uint32_t first, count;
};

/* A sample that was asked for by hand. Its size counts as it was then, whatever becomes of it. */
struct warm {
	uint64_t size;
	uint32_t slot;
};

struct warm_queue {
	struct warm *list;
	uint32_t first, end;
};

struct probing {
	struct probe *sent; /* the kernel has not answered yet */
	unsigned sent_count;
	uint32_t round_left; /* so many residents are looked at in turn, from `next` on */
	uint32_t next;
	uint32_t spread; /* where to look while all is there */
};

/* A version that has come into being recently. */
struct young {
	struct young *next;
	struct node *node; /* held */
	uint64_t until_ms; /* then it is looked at again */
	unsigned rounds;   /* so many times, until it is of age */
};

/* Files whose worth is to be told to the store. */
struct ratings {
	uint64_t *changed;   /* bitmap of slots */
	uint32_t words;	     /* of it */
	uint32_t next;	     /* word to look at */
	uint32_t left;	     /* words to look at; 0: nothing is to be told */
	struct batch *batch; /* the clock's thread alone: what is being told */
};

/* A list of slots. */
struct slot_list {
	uint32_t *slots;
	uint32_t count, room;
};

/* Nodes by slot; NULL: the name is gone. Its slot is used again when nothing can mean the old name
 * by it any more: until then it is retired. */
struct slots {
	struct node **nodes;
	uint32_t count, room;
	struct slot_list retired, free;
	unsigned tables;  /* that clients have registered: see cache_hold_samples() */
	uint64_t version; /* see cache_names_version() */
};

/* What is known of a job besides its scores and orders. Jobs that end leave their records to those
 * that get their numbers. */
struct job_record {
	double uses;	  /* what it has told; 0: nothing */
	uint64_t read_ms; /* when what it had announced was last read */
	struct pace pace;
	struct waits waits;	      /* of its readers */
	struct epoch_counters counts; /* those that are its own, and not the mount's */
	struct epoch_counters begin;  /* all of them, when it began */
	struct epochs epochs;	      /* without rows: it was never heard of */
};

struct cache {
	struct cache_options options; /* constant, but for capacity_bytes and observed */
	struct store *store;
	struct tree *tree;
	struct page_cache *page_cache;
	struct thread clock;
	uint64_t page_bytes;
	uint64_t range_bytes; /* files larger than this are read by ranges */

	struct lock lock;
	struct cond changed; /* lock: see `start_wanted`, `stopping`, the budget */
	struct sched *sched;
	struct slots slots;
	struct numbering numbering;
	struct said *said;		   /* for a successor; NULL: there will be none */
	struct kept_numbers *kept_numbers; /* the same in the estate; NULL: none */
	struct keyed_table waiters;	   /* all that wait for fetches and ranges */
	struct waits waits;		   /* how long */
	struct fetch *fetches;
	struct fetch *waiting, **waiting_end; /* those that wait for room, in turn */
	uint64_t storing_bytes;		      /* the sum of theirs */
	struct ranges ranges;
	struct budget budget;
	struct passing passing;
	struct warm_queue warm;
	struct young *young, **young_end;
	struct probing probing;
	struct ratings ratings;
	struct access_log log;
	struct watch watch;
	uint64_t created_ms; /* constant: times in `epochs` count from here */
	struct job_record jobs[SCHED_JOBS_MAX];
	uint64_t ceiling_bytes;	  /* the capacity; after it was lowered, the old one until
				   * memory has come down */
	struct cache_stats stats; /* the counters of its own */
	bool start_wanted;	  /* the clock's thread is to start what there is room for */
	bool stopping;
	bool is_settled; /* lock: nothing is fetched before: see cache_settle() */
};

/* --- access.c ---------------------------------------------------------------------------------*/

/* Somebody waits for a fetch or a range, which counts for `job`; and no more. */
void waiter_begin_locked(struct cache *cache, struct waiter *waiter, uint32_t job, uint64_t now_ms);
void waiter_end_locked(struct cache *cache, struct waiter *waiter, uint64_t now_ms);
void waiter_answer_all(struct waiter *waiters, int rc);
/* Puts `first` in front of the list. */
struct waiter *waiter_join(struct waiter *first, struct waiter *list);

/* --- versions.c -------------------------------------------------------------------------------*/

extern const struct tree_events cache_tree_events; /* context: the cache */

/* What a file takes, resident or in a buffer: memory has whole pages only. */
uint64_t cache_memory_of(const struct cache *cache, const struct node *node);
/* Too large to be fetched whole: read by ranges. Always so for one node: if some of its READs
 * waited for ranges and others for a fetch, storing what the fetch brought would wait for folios
 * that a range is to fill, in the thread that ends ranges. */
bool cache_is_large(const struct cache *cache, const struct node *node);
/* What the policy is told: what is read by ranges, or too young to be kept, fits nowhere. */
uint64_t cache_policy_size(const struct cache *cache, const struct node *node);
bool cache_is_resident_locked(const struct cache *cache, const struct node *node);
/* NULL: the name is gone. */
struct node *cache_node_locked(const struct cache *cache, uint32_t slot);
/* Looks which retired slots can be used again: the numbering is another, or a table is gone. */
void slots_reuse_locked(struct cache *cache);
/* A slot has no node, but clients may mean it. */
void slots_retire_locked(struct cache *cache, uint32_t slot);
/* A new slot for a file. Without memory it has none, and is never admitted: slow, but right. */
void slots_give_locked(struct cache *cache, struct node *node);
void slots_free(struct slots *slots);

/* --- heirs.c ----------------------------------------------------------------------------------*/

/* A successor begins: slots and numbers are as they were. 0 or a negative errno. */
int heirs_inherit(struct cache *cache);
/* What the kernel has becomes resident. */
void heirs_take_pages(struct cache *cache);
/* There is another numbering. Without memory a successor has to scan again. */
void heirs_keep_numbers_locked(struct cache *cache);

/* --- said.c: for a successor; nothing without an estate ---------------------------------------*/

/* 0 or -ENOMEM. Before slots and jobs are made. */
int said_open(struct cache *cache);
/* A successor has the slots that there were. 0 or -ENOMEM. */
int said_restore(struct cache *cache);
void said_begin_locked(struct cache *cache, uint32_t job);
void said_end_locked(struct cache *cache, uint32_t job);
void said_guess_locked(struct cache *cache, uint32_t job);
void said_epoch_locked(struct cache *cache, uint32_t job, uint64_t epoch);
void said_uses_locked(struct cache *cache, uint32_t job, double uses);
void said_score_locked(struct cache *cache, uint32_t job, uint32_t slot, float score);
void said_forget_scores_locked(struct cache *cache, uint32_t job);
/* The slot's sample is gone: nobody has scored it. */
void said_forget_slot_locked(struct cache *cache, uint32_t slot);
/* The names of samples have changed. */
void said_names_locked(struct cache *cache);
void said_capacity_locked(struct cache *cache, uint64_t bytes);
/* The core has another policy. */
void said_policy_locked(struct cache *cache);

/* --- fetch.c ----------------------------------------------------------------------------------*/

/* The fetch of a node, a new one for `job` if it has none. NULL: no memory, or the node's fetch is
 * abandoned and has not ended; fetch_error_locked() says which. */
struct fetch *fetch_get_locked(struct cache *cache, struct node *node, enum fetch_purpose purpose,
			       uint32_t job, uint64_t now_ms);
int fetch_error_locked(const struct cache *cache, const struct node *node);
void fetch_wait_locked(struct fetch *fetch, struct waiter *waiter, uint64_t now_ms);
/* A READ that comes when the buffer is full is answered from it. True: the caller calls
 * fetch_answer() and then fetch_put(). */
bool fetch_use_buffer_locked(struct fetch *fetch);
void fetch_answer(const struct fetch *fetch, struct waiter *waiter);
void fetch_put(struct fetch *fetch);
/* The policy has set the bytes of this sample aside. */
void fetch_reserve_locked(struct fetch *fetch);
/* Another version has come: what this fetch brings is not to be kept. */
void fetch_unreserve_locked(struct fetch *fetch);
/* Counts the pages that the fetch will fill, if the policy does not. To be called after the policy
 * has changed its mind about the sample. */
void fetch_recount_locked(struct fetch *fetch);
/* What a fetch that waits needs in the budget. */
struct need fetch_need_locked(const struct fetch *fetch);
/* The store is to get it. */
void fetch_start_locked(struct fetch *fetch, uint64_t now_ms);
void fetch_submit(struct fetch *fetch);
/* Those who wait for the first fetch that is late; it is abandoned. `*late` is its node, held, for
 * the log; NULL: none is late. */
struct waiter *fetch_take_late_locked(struct cache *cache, uint64_t now_ms, struct node **late);
/* The end: all who wait, and the store is asked to give up. */
struct waiter *fetch_take_all_locked(struct cache *cache, uint64_t now_ms);
/* It waits for a fetch, and will not be answered. */
void fetch_take_waiter_locked(struct cache *cache, struct waiter *waiter, uint64_t now_ms);
void fetch_free_all(struct cache *cache);

/* --- start.c ----------------------------------------------------------------------------------*/

/* What is to be started, chosen under the lock and submitted without it: one cycle of the lock
 * serves an access and what follows from it. */
struct starts {
	struct fetch *fetches;
	struct range *ranges;
};

/* Whether a read may start; what passes through makes way. */
bool start_has_room_locked(struct cache *cache, struct need need, uint64_t now_ms);
/* The same for the spare third of the budget; true: it counts as used. */
bool start_use_spare_locked(struct cache *cache, struct need need, uint64_t now_ms);
/* Chooses whatever there is room for: what readers wait for, then what is fetched ahead. */
struct starts start_pick_locked(struct cache *cache, uint64_t now_ms);
void start_submit(struct cache *cache, struct starts starts);
void start_all(struct cache *cache);
/* Has the clock's thread do that. Threads that wait in the kernel for the folios of a READ must
 * not have begun what that READ waits for: what the store has to do for a read is done by the
 * thread that began it, whenever that is out of the kernel. */
void start_soon_locked(struct cache *cache);
/* A sample that the policy has admitted for a job, with nobody waiting for it. NULL: it needs no
 * start, since the name is gone or a reader's fetch is under way. */
struct fetch *start_ahead_locked(struct cache *cache, uint32_t slot, enum fetch_purpose purpose,
				 uint32_t job, uint64_t now_ms);
/* The store has one read less, and whoever waited for it is answered. */
void start_landed(struct cache *cache, bool by_clock);

/* --- range.c ----------------------------------------------------------------------------------*/

struct range *range_pick_locked(struct cache *cache, uint64_t now_ms);
void range_submit_all(struct range *ranges);
/* One range of a large file, for one reader. */
void range_read(struct cache *cache, struct node *node, struct waiter *waiter, uint64_t now_ms);
/* Those whose deadline has passed; the store is asked to give up. */
struct waiter *range_take_late_locked(struct cache *cache, uint64_t now_ms);
/* The end: all who wait. */
struct waiter *range_take_all_locked(struct cache *cache, uint64_t now_ms);
/* It waits for a range, and will not be answered. */
void range_take_waiter_locked(struct cache *cache, struct waiter *waiter, uint64_t now_ms);

/* --- passing.c --------------------------------------------------------------------------------*/

/* The kernel has bytes of a file that was not admitted: until its readers close it, or until
 * room is needed. */
void passing_add_locked(struct cache *cache, struct node *node, uint64_t now_ms);
/* It has been admitted meanwhile, is dropped, or gone. */
void passing_remove_locked(struct cache *cache, struct node *node);
/* The last reader has closed it. */
void passing_closed_locked(struct cache *cache, struct node *node, uint64_t now_ms);
/* Observed closes may be missed; what passes through for long is dropped without. */
void passing_expire_locked(struct cache *cache, uint64_t now_ms);
/* Makes room by dropping what passes through, the oldest first. */
void passing_make_room_locked(struct cache *cache, struct need need, uint64_t now_ms);
void passing_release_all(struct cache *cache);
/* Has the kernel drop the pages of a node, and its name if it is stale. */
void drop_locked(struct cache *cache, struct node *node, uint64_t now_ms);
/* Drops the pages of the samples that have left. */
void drop_victims_locked(struct cache *cache, const struct sched_verdict *verdict, uint64_t now_ms);
/* Lets residents leave until the policy is within its capacity. */
void drop_excess_locked(struct cache *cache, uint64_t now_ms);
/* The page cache has done so: for page_cache_open(). */
void drop_done(void *cache, struct node *node);

/* --- warm.c -----------------------------------------------------------------------------------*/

/* The next of the queue that needs a fetch. */
struct fetch *warm_next_locked(struct cache *cache, uint64_t now_ms);
/* A fetch that `warms` has come to an end. */
void warm_done_locked(struct cache *cache, uint64_t bytes, int rc);

/* --- ratings.c --------------------------------------------------------------------------------*/

/* What a file with a slot is worth, from 0 to 1. `served`: its next use is provided for. `kept`:
 * memory has it, or will. */
float ratings_worth_locked(const struct cache *cache, const struct node *node, bool served,
			   bool kept);
/* A hint about a sample has changed, or it has left memory. */
void ratings_change_locked(struct cache *cache, uint32_t slot);
/* Tells the store some of what has changed. To be called by the clock's thread, without the lock.
 */
void ratings_tell(struct cache *cache);
void ratings_free(struct ratings *ratings);

/* --- young.c ----------------------------------------------------------------------------------*/

/* A version that was not known before. `changed`: that is because the source has changed, not
 * because it was not looked at. */
void young_add_locked(struct cache *cache, struct node *node, bool changed, uint64_t now_ms);
/* Those who have come of age can be kept from now on. */
void young_expire_locked(struct cache *cache, uint64_t now_ms);
void young_release_all(struct cache *cache);

/* --- probe.c ----------------------------------------------------------------------------------*/

/* Looks at some residents. To be called every few milliseconds, without the lock. */
void probe_some(struct cache *cache);
/* The kernel has got a file: answers about it that are on their way mean nothing. */
void probe_forget_locked(struct cache *cache, const struct node *node);
void probe_free_all(struct cache *cache);

/* --- report.c ----------------------------------------------------------------------------------*/

/* All memory that the capacity bounds, as far as it is in use: never more than that. */
uint64_t report_memory_locked(const struct cache *cache);

/* --- history.c --------------------------------------------------------------------------------*/

/* The job reads a sample. */
void history_access_locked(struct cache *cache, uint32_t job, uint32_t slot, uint64_t now_ms);
/* Counts something of the job's own. */
void history_count_locked(struct cache *cache, uint32_t job, enum epoch_counter which,
			  uint64_t more);
/* All counters of a job since the mount began. */
struct epoch_counters history_counters_locked(struct cache *cache, uint32_t job, uint64_t now_ms);
/* A job begins. */
void history_job_locked(struct cache *cache, uint32_t job, uint64_t now_ms);
/* Slots below this come. */
void history_reserve_locked(struct cache *cache, uint32_t slots);
void history_free(struct cache *cache);
/* A job's epoch begins; an order for it was taken. */
void history_epoch_locked(struct cache *cache, uint32_t job, uint64_t epoch, uint64_t now_ms);
void history_order_locked(struct cache *cache, uint32_t job, uint64_t epoch);

/* --- numbering.c: below a path ------------------------------------------------------------------
 */

/* The slots of all files at or below a path, to be freed. */
int numbering_below(struct cache *cache, const char *path, uint32_t **slots, uint32_t *count);

#endif
