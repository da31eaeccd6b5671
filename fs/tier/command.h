/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The commands that the tier sends, each as a flight of a pipeline, which must have room for it. */
#ifndef SHADE_COMMAND_H
#define SHADE_COMMAND_H

#include "tier/pipeline.h"

/* `user` may be NULL. */
void command_auth(struct pipeline *pipeline, const char *user, const char *password,
		  uint64_t now_ms);
void command_ping(struct pipeline *pipeline, uint64_t now_ms);
void command_cluster_slots(struct pipeline *pipeline, uint64_t now_ms);
/* With ASKING before it, if the request says so. `extends`: a GET sets the time to live. */
void command_request(struct pipeline *pipeline, struct engine_request *request, bool extends,
		     uint64_t now_ms);

#endif
