/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* shade-sim: the policy core without a kernel. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "fail.h"
#include "sim.h"
#include "systems.h"

static void print_help(void)
{
	fputs("usage: shade-sim replay --trace FILE --capacity SIZE|N% [--policy A,B,...]\n"
	      "                        [--json|--csv]\n"
	      "       shade-sim run --samples N --epochs E --capacity N% [--sampler NAME]\n"
	      "                     [--policy A,B,...] [--rep R] [--uses E] [--strength S]\n"
	      "                     [--repeats N] [--cover K] [--prune] [--keep P]\n"
	      "                     [--never-full] [--substitute] [--batch B] [--nodes N]\n"
	      "                     [--ranks R] [--assign owner|stride|hash] [--block B]\n"
	      "                     [--mix S] [--restart E] [--lookahead 0|1] [--seed S]\n"
	      "                     [--losses FILE] [--freeze FILE] [--by-epoch] [--json|--csv]\n"
	      "       shade-sim compare [--samples N] [--epochs E] [--capacity N%,...]\n"
	      "                         [--systems A,B,...] [--batch B] [--nodes N] [--seed S]\n"
	      "                         [--losses FILE] [--json|--csv]\n"
	      "       shade-sim --help | --version\n"
	      "\n"
	      "replay  sends a trace through each policy. Its lines: a ID [SIZE] (access),\n"
	      "        s ID SCORE, o EPOCH ID ID ... (order announced), e EPOCH (epoch begins),\n"
	      "        # comment. FILE - is standard input. N% is of the bytes of all samples.\n"
	      "run     closes the loop of sampler, cache and losses, and prints the first half\n"
	      "        of the epochs (cold) and the second (warm) apart.\n"
	      "compare runs systems by name in such loops, side by side at 10, 20 and 40 %, and\n"
	      "        prints the second half of the epochs (30 of 10000 samples, unless told).\n"
	      "\n"
	      "  --sampler NAME   uniform, replacement, paper, pads (default), echo, prune or iis\n"
	      "  --rep R          repeats of residents: paper, pads (default 1)\n"
	      "  --repeats N      entries of one sample in an epoch, at most: pads\n"
	      "                   (default 2 R, at least 4)\n"
	      "  --cover K        every sample once in K epochs: pads, prune, and iis with\n"
	      "                   --substitute (default 5)\n"
	      "  --uses E         mean uses of a fetched sample: echo (default 4)\n"
	      "  --strength S     how far uses grow with importance, 0 to 1: echo (default 0)\n"
	      "  --prune          leave out of the stream what prune would: echo\n"
	      "  --keep P         the chance of a sample with a small loss: prune (default 0.5)\n"
	      "  --never-full     no epochs that read everything: iis\n"
	      "  --substitute     absent unimportant samples name resident ones instead: iis\n"
	      "  --batch B        samples that are ranked together (default 64)\n"
	      "  --nodes N        machines, each with a cache of its own (default 1);\n"
	      "                   --capacity takes one for all, or one for each: 5%,10%\n"
	      "  --ranks R        processes of a node, which share its cache (default 1);\n"
	      "                   one for all, or one for each: 1,2\n"
	      "  --assign HOW     entries of an order go to the node that has read their sample\n"
	      "                   last (owner, the default), or round the ranks (stride); hash:\n"
	      "                   round the ranks, and a sample is cached by one node (CoorDL)\n"
	      "  --block B        entries of a rank that are assigned together (default 1024)\n"
	      "  --mix S          the share of entries that go to any node (default 0)\n"
	      "  --restart E      node 0 loses its cache when epoch E begins\n"
	      "  --lookahead 1    draw and announce each order an epoch ahead\n"
	      "  --losses FILE    recorded losses, lines EPOCH ID LOSS, instead of the model\n"
	      "  --by-epoch       print each epoch apart\n"
	      "  --freeze FILE    write the stream that was made as a trace (one policy)\n"
	      "\n"
	      "policies (all: those that a mount has):\n",
	      stdout);
	args_print_policies();
	puts("\nsystems of compare (own, moved or replaced: the bytes that a reader gets of what "
	     "its\n"
	     "order names):");
	for (unsigned i = 0; systems_get(i); i++)
		printf("  %-12s %-9s %s\n", systems_get(i)->name,
		       systems_bytes_name(systems_get(i)->bytes), systems_get(i)->summary);
}

/* A run whose results could not be written has failed. */
static int finish(int code)
{
	if (!fflush(stdout) && !ferror(stdout))
		return code;
	fprintf(stderr, "shade-sim: cannot write the results: %s\n", strerror(errno));
	return 1;
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";

	if (!strcmp(command, "replay"))
		return finish(replay_main(argc - 1, argv + 1));
	if (!strcmp(command, "run"))
		return finish(run_main(argc - 1, argv + 1));
	if (!strcmp(command, "compare"))
		return finish(compare_main(argc - 1, argv + 1));
	if (!strcmp(command, "--help")) {
		print_help();
		return 0;
	}
	if (!strcmp(command, "--version")) {
		puts("shade-sim " SHADE_VERSION);
		return 0;
	}
	fail("say compare, replay or run; shade-sim --help tells more");
}
