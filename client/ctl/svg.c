/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "svg.h"

#include <math.h>

#include "html.h"
#include "say.h"

#define WIDTH 360.0
#define HEIGHT 212.0
#define LEFT 56.0
#define RIGHT 12.0
#define TOP 24.0
#define BOTTOM 37.0
#define TEXT_WIDTH 6.2 /* of a character, about */

#define POINTS_MAX 60

/* Where things are. */
struct frame {
	double x_first, x_last;
	double y_most;
	unsigned steps;
};

double svg_round_up(double most, unsigned *steps)
{
	static const double rounds[] = { 1, 2, 2.5, 5, 10 };
	double power, step = 10;

	*steps = 4;
	if (!(most > 0) || !isfinite(most))
		return 1;
	power = pow(10, floor(log10(most / 4)));
	for (unsigned i = sizeof(rounds) / sizeof(rounds[0]); i--;)
		if (rounds[i] * power * 4 >= most * (1 - 1e-12))
			step = rounds[i];
	*steps = (unsigned)ceil(most / (step * power) - 1e-9);
	return step * power * *steps;
}

static double largest(const struct svg_chart *chart, bool stacked)
{
	double most = 0;

	for (unsigned i = 0; i < chart->count; i++) {
		double sum = 0;

		for (unsigned j = 0; j < chart->series_count; j++) {
			double value = chart->series[j].values[i];

			if (!isfinite(value))
				continue;
			sum = stacked ? sum + value : value;
			most = fmax(most, sum);
		}
	}
	return most;
}

/* Bytes have steps of their own unit, so that an axis says 64 and not 61 MiB. */
static double byte_unit(double most)
{
	double unit = 1;

	while (most / unit >= 1024)
		unit *= 1024;
	return unit;
}

static double x_of(const struct svg_chart *chart, unsigned index)
{
	return chart->x ? chart->x[index] : index;
}

static struct frame frame_for(const struct svg_chart *chart, bool stacked)
{
	double most = largest(chart, stacked), unit = 1;
	struct frame frame = { 0 };

	if (chart->unit == SVG_PERCENT) {
		frame.y_most = 1;
		frame.steps = 4;
	} else {
		unit = chart->unit == SVG_BYTES ? byte_unit(most) : 1;
		frame.y_most = svg_round_up(most / unit, &frame.steps) * unit;
	}
	if (chart->count) {
		frame.x_first = x_of(chart, 0);
		frame.x_last = x_of(chart, chart->count - 1);
	}
	return frame;
}

static double place_x(const struct frame *frame, double x)
{
	double span = frame->x_last - frame->x_first;

	return LEFT + (span > 0 ? (x - frame->x_first) / span : 0.5) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct frame *frame, double y)
{
	double share = fmin(fmax(y / frame->y_most, 0), 1);

	return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
}

/* Short, since there is little room beside an axis: 12.5 MiB, 10,000, 2.5 M. */
static struct figure axis_text(const struct svg_chart *chart, double value)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	struct figure text;
	unsigned power = 0;

	if (chart->unit == SVG_PERCENT) {
		snprintf(text.text, sizeof(text.text), "%.0f %%", 100 * value);
	} else if (chart->unit == SVG_BYTES) {
		for (; value >= 1024 && power < 5; power++)
			value /= 1024;
		snprintf(text.text, sizeof(text.text), "%.4g %s", value, names[power]);
	} else if (value >= 1e6) {
		snprintf(text.text, sizeof(text.text), "%.4g M", value / 1e6);
	} else if (value >= 10000) {
		return say_count(value);
	} else {
		snprintf(text.text, sizeof(text.text), "%.4g", value);
	}
	return text;
}

static struct figure value_text(const struct svg_chart *chart, double value)
{
	return chart->unit == SVG_PERCENT ? say_percent(value)
	       : chart->unit == SVG_BYTES ? say_bytes(value)
					  : say_count(value);
}

static void text_at(FILE *out, double x, double y, const char *anchor, const char *text)
{
	fprintf(out, "<text x='%.1f' y='%.1f' text-anchor='%s'>", x, y, anchor);
	html_text(out, text);
	fputs("</text>", out);
}

static void begin(FILE *out, const struct svg_chart *chart)
{
	fprintf(out, "<svg viewBox='0 0 %g %g' role='img'><title>", WIDTH, HEIGHT);
	html_text(out, chart->title);
	fputs("</title>\n", out);
}

static void draw_y_axis(FILE *out, const struct svg_chart *chart, const struct frame *frame)
{
	text_at(out, 2, 12, "start", chart->y_label);
	for (unsigned i = 0; i <= frame->steps; i++) {
		double value = frame->y_most * i / frame->steps;
		double y = place_y(frame, value);

		fprintf(out, "<line class='%s' x1='%g' x2='%g' y1='%.1f' y2='%.1f'/>",
			i ? "grid" : "axis", LEFT, WIDTH - RIGHT, y, y);
		text_at(out, LEFT - 5, y + 3.5, "end", axis_text(chart, value).text);
	}
	fputc('\n', out);
}

typedef double place_on_x(const struct svg_chart *chart, const struct frame *frame, unsigned index);

static double half_width(const char *text)
{
	return TEXT_WIDTH * (double)html_length(text) / 2;
}

/* Whether every STRIDE-th text fits without touching the one before. */
static bool texts_fit(const struct svg_chart *chart, const struct frame *frame, place_on_x *place,
		      unsigned stride)
{
	double free_from = 0;

	for (unsigned i = 0; i < chart->count; i += stride) {
		double x = place(chart, frame, i), half = half_width(chart->x_text[i]);

		if (x - half < free_from)
			return false;
		free_from = x + half + 8;
	}
	return true;
}

/* 1, 2, 5, 10, 20... */
static unsigned next_stride(unsigned stride)
{
	unsigned power = 1;

	while (power * 10 <= stride)
		power *= 10;
	return stride == 2 * power ? 5 * power : 2 * stride;
}

static void draw_x_axis(FILE *out, const struct svg_chart *chart, const struct frame *frame,
			place_on_x *place)
{
	unsigned stride = 1;

	text_at(out, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "middle", chart->x_label);
	while (stride < chart->count && !texts_fit(chart, frame, place, stride))
		stride = next_stride(stride);
	for (unsigned i = 0; i < chart->count; i += stride) {
		const char *text = chart->x_text[i];

		text_at(out, fmin(place(chart, frame, i), WIDTH - half_width(text)),
			HEIGHT - BOTTOM + 16, "middle", text);
	}
	fputc('\n', out);
}

/* --- lines --------------------------------------------------------------------------------------
 */

static double place_point(const struct svg_chart *chart, const struct frame *frame, unsigned index)
{
	return place_x(frame, x_of(chart, index));
}

static void draw_line(FILE *out, const struct svg_chart *chart, const struct frame *frame,
		      const struct svg_series *series)
{
	bool down = false;

	fprintf(out, "<path class='line s%u' d='", series->style);
	for (unsigned i = 0; i < chart->count; i++) {
		double value = series->values[i];

		if (isfinite(value))
			fprintf(out, "%c%.1f %.1f", down ? 'L' : 'M', place_point(chart, frame, i),
				place_y(frame, value));
		down = isfinite(value);
	}
	fputs("'/>\n", out);
}

/* Each says its value when it is pointed at. Many would hide how their line is dashed. */
static void draw_points(FILE *out, const struct svg_chart *chart, const struct frame *frame,
			const struct svg_series *series)
{
	for (unsigned i = 0; i < chart->count && chart->count <= POINTS_MAX; i++) {
		double value = series->values[i];

		if (!isfinite(value))
			continue;
		fprintf(out, "<circle class='point s%u' cx='%.1f' cy='%.1f' r='2.6'><title>",
			series->style, place_point(chart, frame, i), place_y(frame, value));
		html_text(out, series->name);
		fprintf(out, ": %s</title></circle>\n", value_text(chart, value).text);
	}
}

void svg_lines(FILE *out, const struct svg_chart *chart)
{
	struct frame frame = frame_for(chart, false);

	begin(out, chart);
	draw_y_axis(out, chart, &frame);
	draw_x_axis(out, chart, &frame, place_point);
	if (isfinite(chart->marked)) {
		double x = place_x(&frame, chart->marked);

		fprintf(out, "<line class='mark' x1='%.1f' x2='%.1f' y1='%g' y2='%g'/>", x, x, TOP,
			HEIGHT - BOTTOM);
	}
	for (unsigned i = 0; i < chart->series_count; i++) {
		draw_line(out, chart, &frame, &chart->series[i]);
		draw_points(out, chart, &frame, &chart->series[i]);
	}
	fputs("</svg>\n", out);
}

/* --- bars ---------------------------------------------------------------------------------------
 */

static double bar_width(const struct svg_chart *chart)
{
	return (WIDTH - LEFT - RIGHT) / chart->count;
}

static double place_bar(const struct svg_chart *chart, const struct frame *frame, unsigned index)
{
	(void)frame;
	return LEFT + (index + 0.5) * bar_width(chart);
}

static void draw_bar(FILE *out, const struct svg_chart *chart, const struct frame *frame,
		     unsigned index)
{
	double width = fmin(bar_width(chart) * 0.8, 40), below = 0;

	for (unsigned i = 0; i < chart->series_count; i++) {
		const struct svg_series *series = &chart->series[i];
		double value = series->values[index];
		double y;

		if (!(value > 0) || !isfinite(value))
			continue;
		y = place_y(frame, below + value);
		fprintf(out,
			"<rect class='bar s%u' x='%.1f' y='%.1f' width='%.1f' height='%.1f'>"
			"<title>",
			series->style, place_bar(chart, frame, index) - width / 2, y, width,
			place_y(frame, below) - y);
		html_text(out, series->name);
		fprintf(out, ": %s</title></rect>\n", value_text(chart, value).text);
		below += value;
	}
}

void svg_bars(FILE *out, const struct svg_chart *chart)
{
	struct frame frame = frame_for(chart, true);

	begin(out, chart);
	draw_y_axis(out, chart, &frame);
	draw_x_axis(out, chart, &frame, place_bar);
	for (unsigned i = 0; i < chart->count; i++)
		draw_bar(out, chart, &frame, i);
	fputs("</svg>\n", out);
}

/* --- legends ------------------------------------------------------------------------------------
 */

void svg_legend(FILE *out, const struct svg_chart *chart)
{
	fputs("<ul class='legend'>", out);
	for (unsigned i = 0; i < chart->series_count; i++) {
		fprintf(out,
			"<li><svg viewBox='0 0 26 10' aria-hidden='true'>"
			"<path class='line s%u' d='M1 5L25 5'/></svg>",
			chart->series[i].style);
		html_text(out, chart->series[i].name);
		fputs("</li>", out);
	}
	fputs("</ul>\n", out);
}
