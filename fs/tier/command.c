/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tier/command.h"

#include <assert.h>

static void end_text(struct flight *flight, const struct resp_out *out)
{
	assert(out->size <= out->room);
	flight->text_size = out->size;
}

static struct resp_out begin_text(struct flight *flight)
{
	return (struct resp_out){ flight->text, sizeof(flight->text), 0 };
}

static void add_words(struct pipeline *pipeline, enum verb verb, const char *const *words,
		      unsigned count_, uint64_t now_ms)
{
	struct flight *flight = pipeline_add(pipeline, verb, NULL, now_ms);
	struct resp_out out = begin_text(flight);

	resp_begin(&out, count_);
	for (unsigned i = 0; i < count_; i++)
		resp_string(&out, words[i]);
	end_text(flight, &out);
}

void command_auth(struct pipeline *pipeline, const char *user, const char *password,
		  uint64_t now_ms)
{
	const char *with_user[] = { "AUTH", user, password };
	const char *without[] = { "AUTH", password };

	if (user)
		add_words(pipeline, VERB_AUTH, with_user, 3, now_ms);
	else
		add_words(pipeline, VERB_AUTH, without, 2, now_ms);
}

void command_ping(struct pipeline *pipeline, uint64_t now_ms)
{
	static const char *const words[] = { "PING" };

	add_words(pipeline, VERB_PING, words, 1, now_ms);
}

void command_cluster_slots(struct pipeline *pipeline, uint64_t now_ms)
{
	static const char *const words[] = { "CLUSTER", "SLOTS" };

	add_words(pipeline, VERB_CLUSTER_SLOTS, words, 2, now_ms);
}

static void write_get(struct resp_out *out, const struct engine_request *request, bool extends)
{
	resp_begin(out, extends ? 4 : 2);
	resp_string(out, extends ? "GETEX" : "GET");
	resp_word(out, request->key, request->key_size);
	if (extends) {
		resp_string(out, "EX");
		resp_number(out, request->ttl);
	}
}

/* The value comes last, so that it can be sent from where it is. */
static void write_set(struct resp_out *out, const struct engine_request *request)
{
	resp_begin(out, 4);
	resp_string(out, "SETEX");
	resp_word(out, request->key, request->key_size);
	resp_number(out, request->ttl);
	resp_word_head(out, VALUE_HEAD + request->body_size);
}

static void write_expire(struct resp_out *out, const struct engine_request *request)
{
	resp_begin(out, 3);
	resp_string(out, "EXPIRE");
	resp_word(out, request->key, request->key_size);
	resp_number(out, request->ttl);
}

void command_request(struct pipeline *pipeline, struct engine_request *request, bool extends,
		     uint64_t now_ms)
{
	static const enum verb verbs[] = {
		[ENGINE_GET] = VERB_GET, [ENGINE_SET] = VERB_SET, [ENGINE_EXPIRE] = VERB_EXPIRE
	};
	static const char *const asking[] = { "ASKING" };
	struct flight *flight;
	struct resp_out out;

	if (request->asking)
		add_words(pipeline, VERB_ASKING, asking, 1, now_ms);
	request->asking = false;
	flight = pipeline_add(pipeline, verbs[request->verb], request, now_ms);
	flight->extends = extends && request->verb == ENGINE_GET;
	out = begin_text(flight);
	if (request->verb == ENGINE_GET)
		write_get(&out, request, flight->extends);
	else if (request->verb == ENGINE_SET)
		write_set(&out, request);
	else
		write_expire(&out, request);
	end_text(flight, &out);
}
