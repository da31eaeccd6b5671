/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A few escapes that every terminal of the last decades knows, and termios. Signals that end the
 * program restore the terminal in their handler and are then raised anew: a mount that hangs may
 * keep us in read(), so there is no waiting for the main loop to notice. All that is called
 * there is safe in a handler.
 */
#include "terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "chart.h"

#define SCREEN_ENTER "\033[?1049h\033[?25l"
#define SCREEN_LEAVE "\033[?25h\033[?1049l"

static struct termios before;
static bool has_keyboard;
static volatile sig_atomic_t entered;

struct terminal_size terminal_size(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_row || !size.ws_col)
		return (struct terminal_size){ 24, 80 };
	return (struct terminal_size){ size.ws_row, size.ws_col };
}

static void write_out(const char *text, size_t length)
{
	while (length) {
		ssize_t wrote = write(STDOUT_FILENO, text, length);

		if (wrote < 0 && errno != EINTR)
			return;
		if (wrote > 0) {
			text += wrote;
			length -= (size_t)wrote;
		}
	}
}

static void take(void)
{
	struct termios raw = before;

	raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
	raw.c_cc[VMIN] = 1;
	raw.c_cc[VTIME] = 0;
	entered = 1;
	if (has_keyboard)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	write_out(SCREEN_ENTER, sizeof(SCREEN_ENTER) - 1);
}

void terminal_leave(void)
{
	if (!entered)
		return;
	entered = 0;
	write_out(SCREEN_LEAVE, sizeof(SCREEN_LEAVE) - 1);
	if (has_keyboard)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

/* The default action follows when the handler returns. */
static void on_end(int number)
{
	terminal_leave();
	signal(number, SIG_DFL);
	raise(number);
}

static void on_stop(int number)
{
	int error = errno;

	(void)number;
	terminal_leave();
	raise(SIGSTOP);
	take();
	errno = error;
}

/* Only there to interrupt poll(). */
static void on_resize(int number)
{
	(void)number;
}

static void handle(int number, void (*handler)(int))
{
	struct sigaction action = { .sa_handler = handler };

	sigemptyset(&action.sa_mask);
	sigaction(number, &action, NULL);
}

void terminal_enter(void)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP,  SIGQUIT, SIGPIPE,
				    SIGBUS, SIGSEGV, SIGABRT, SIGFPE,  SIGILL };

	has_keyboard = isatty(STDIN_FILENO) && !tcgetattr(STDIN_FILENO, &before);
	atexit(terminal_leave);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		handle(ends[i], on_end);
	handle(SIGTSTP, on_stop);
	handle(SIGWINCH, on_resize);
	take();
}

void terminal_show(const char *text, size_t length)
{
	struct terminal_size size = terminal_size();
	const char *end = text + length;
	char *bytes = NULL;
	size_t count = 0;
	FILE *out = open_memstream(&bytes, &count);

	if (!out)
		return;
	fputs("\033[H", out);
	for (unsigned row = 0; row < size.rows && text < end; row++) {
		size_t line = strcspn(text, "\n");

		/* No newline after the last row: it would scroll. */
		fprintf(out, "%s%.*s\033[K", row ? "\r\n" : "",
			(int)chart_fit(text, line, size.columns), text);
		text += line + (text[line] == '\n');
	}
	fputs("\033[J", out);
	if (!fclose(out))
		write_out(bytes, count);
	free(bytes);
}

int terminal_key(double seconds)
{
	struct pollfd keyboard = { .fd = has_keyboard ? STDIN_FILENO : -1, .events = POLLIN };
	unsigned char key;

	if (poll(&keyboard, 1, (int)(seconds * 1000)) <= 0)
		return 0;
	if (keyboard.revents & POLLIN && read(STDIN_FILENO, &key, 1) == 1)
		return key;
	return -1;
}
