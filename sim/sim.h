/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The commands of shade-sim: each parses its own options and returns the exit code. */
#ifndef SHADE_SIM_SIM_H
#define SHADE_SIM_SIM_H

int replay_main(int argc, char **argv);
int compare_main(int argc, char **argv);
int run_main(int argc, char **argv);

#endif
