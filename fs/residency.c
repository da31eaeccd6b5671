/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "residency.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "log.h"

struct residency {
	struct tree *tree;
	const struct residency_kernel *kernel;
	void *context;
	pthread_t thread;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct residency_store *first, **end; /* lock */
	bool busy;			      /* lock: the thread works on one */
	bool closing;			      /* lock */
};

static int store_one(struct residency *r, const struct residency_store *store)
{
	int rc = r->kernel->store(r->context, store->node, store->data, store->size);

	if (rc != -ENOENT)
		return rc;
	rc = r->kernel->introduce(r->context, store->node);
	return rc ? rc : r->kernel->store(r->context, store->node, store->data, store->size);
}

/* A drop is a store without data. */
static void do_one(struct residency *r, struct residency_store *store, bool closing)
{
	struct node *node = store->node;
	int rc = -ESHUTDOWN;

	if (!store->done) {
		if (!closing)
			(void)r->kernel->drop(r->context, node);
		free(store);
	} else {
		if (!closing)
			rc = store_one(r, store);
		if (rc && rc != -ESHUTDOWN)
			log_say(LOG_DETAILS, "storing %s: error %d", node->name, -rc);
		store->done(store, rc);
	}
	tree_release(r->tree, node);
}

static void *serve(void *argument)
{
	struct residency *r = argument;

	pthread_mutex_lock(&r->lock);
	for (;;) {
		struct residency_store *store = r->first;
		bool closing = r->closing;

		if (!store && closing)
			break;
		if (!store) {
			pthread_cond_wait(&r->changed, &r->lock);
			continue;
		}
		r->first = store->next;
		if (!r->first)
			r->end = &r->first;
		r->busy = true;
		pthread_mutex_unlock(&r->lock);
		do_one(r, store, closing);
		pthread_mutex_lock(&r->lock);
		r->busy = false;
		pthread_cond_broadcast(&r->changed);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

void residency_store(struct residency *r, struct residency_store *store)
{
	node_hold(store->node);
	store->next = NULL;
	pthread_mutex_lock(&r->lock);
	*r->end = store;
	r->end = &store->next;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

int residency_drop(struct residency *r, struct node *node)
{
	struct residency_store *drop = calloc(1, sizeof(*drop));

	if (!drop)
		return -ENOMEM;
	drop->node = node;
	residency_store(r, drop);
	return 0;
}

void residency_settle(struct residency *r)
{
	pthread_mutex_lock(&r->lock);
	while (r->first || r->busy)
		pthread_cond_wait(&r->changed, &r->lock);
	pthread_mutex_unlock(&r->lock);
}

int residency_open(struct residency **out, struct tree *tree, const struct residency_kernel *kernel,
		   void *context)
{
	struct residency *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	r->tree = tree;
	r->kernel = kernel;
	r->context = context;
	r->end = &r->first;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	rc = -pthread_create(&r->thread, NULL, serve, r);
	if (rc) {
		free(r);
		return rc;
	}
	*out = r;
	return 0;
}

void residency_close(struct residency *r)
{
	pthread_mutex_lock(&r->lock);
	r->closing = true;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->changed);
	free(r);
}
