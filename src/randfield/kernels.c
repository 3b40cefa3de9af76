/* The inner loops of randfield on a CPU: one pass over the pixels where PyTorch takes a dozen.

   Each function computes what a few lines of Python compute, as its comment names them. Those lines are the reference:
   they run where this file was not compiled, and tests/test_kernels.py holds the two equal. `kernels.py` decides who
   runs and checks everything; nothing is checked, allocated or remembered here.

   All goes tile by tile, a stretch of at most TILE pixels in arrays on the stack. They fit the nearest cache, and a
   compiler sees that they do not overlap: plain loops over them become vector instructions on any machine. Choices are
   written as `a < b ? a : b`, which is one such instruction and takes NaN for a no.

   Planes are contiguous rows of float32 unless strides are passed, which count elements. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define TILE 256
#define HALO 64 /* known to kernels.py */

static inline float least(float a, float b) { return a < b ? a : b; }
static inline float most(float a, float b) { return a > b ? a : b; }
static inline float clamp(float a, float low, float high) { return least(most(a, low), high); }
static inline int tile_at(long first, long end) { return end - first < TILE ? (int)(end - first) : TILE; }

static void gather(const float *from, long step, int n, float *to) {
    for (int i = 0; i < n; i++) to[i] = from[i * step];
}

/* ------------------------------------------------------------------------------------------------ layout: contiguous */

/* Bytes of [pixels, 3], as decoders leave them, to three planes. */
void planes(long pixels, const uint8_t *from, uint8_t *to) {
    for (long first = 0; first < pixels; first += TILE) {
        const int count = tile_at(first, pixels);
        uint8_t red[TILE], green[TILE], blue[TILE];
        for (int i = 0; i < count; i++) {
            red[i] = from[3 * (first + i)];
            green[i] = from[3 * (first + i) + 1];
            blue[i] = from[3 * (first + i) + 2];
        }
        memcpy(to + first, red, count);
        memcpy(to + pixels + first, green, count);
        memcpy(to + 2 * pixels + first, blue, count);
    }
}

/* ------------------------------------------------------------------------------------------ bounds: fields.peak_of */

/* The largest magnitude of each of n fields; NaN if there is one in it. Without their sign, floats are ordered as the
   integers of the same bits are, and NaN comes last. */
void peak(long n, long pixels, const float *phi, float *out) {
    for (long field = 0; field < n; field++) {
        int32_t highest = 0;
        for (long i = 0; i < pixels; i++) {
            int32_t bits;
            memcpy(&bits, phi + field * pixels + i, sizeof bits);
            bits &= INT32_MAX;
            highest = bits > highest ? bits : highest;
        }
        memcpy(out + field, &highest, sizeof highest);
    }
}

/* ------------------------------------------------------------------------------------- sampling: warp.pull, bilinear */

/* From source points in units of the image to the pixel up and left of them, and the weights of its neighbours.
   Outside, the image is mirrored at its edges if `reflect`; else, and in the outer half pixel, its border goes on. */
static void locate(float *x, float *y, int n, int height, int width, int reflect, int32_t *at, float *right, float *down) {
    const float shorter = height < width ? height : width;
    const float per_width = shorter / width, per_height = shorter / height;
    const int last_column = width > 1 ? width - 2 : 0, last_row = height > 1 ? height - 2 : 0;
    for (int i = 0; i < n; i++) {
        x[i] = x[i] * per_width + 1; /* each side spans [0, 2] */
        y[i] = y[i] * per_height + 1;
    }
    if (reflect)
        for (int i = 0; i < n; i++) { /* a triangle wave of period 4 */
            x[i] = fabsf(x[i] - 4 * rintf(x[i] * 0.25f));
            y[i] = fabsf(y[i] - 4 * rintf(y[i] * 0.25f));
        }
    for (int i = 0; i < n; i++) {
        const float column = clamp((x[i] * width - 1) * 0.5f, 0, width - 1); /* NaN becomes 0 */
        const float row = clamp((y[i] * height - 1) * 0.5f, 0, height - 1);
        const int c = (int)least(column, last_column), r = (int)least(row, last_row);
        at[i] = r * width + c;
        right[i] = column - c;
        down[i] = row - r;
    }
}

/* n images of `channels` planes, of bytes if `bytes_in` is set, else of floats; at least two columns wide. Each is pulled
   through a grid of its own, [n, rows, columns, 2] with these strides. */
void pull(long n, long channels, int height, int width, const float *floats_in, const uint8_t *bytes_in, const float *grid,
          const long *strides, long rows, long columns, int reflect, float *floats_out, uint8_t *bytes_out) {
    const long plane = (long)height * width, below = height > 1 ? width : 0;
    for (long sample = 0; sample < n; sample++)
        for (long row = 0; row < rows; row++)
            for (long first = 0; first < columns; first += TILE) {
                const int count = tile_at(first, columns);
                const float *point = grid + sample * strides[0] + row * strides[1] + first * strides[2];
                float x[TILE], y[TILE], right[TILE], down[TILE];
                int32_t at[TILE];
                gather(point, strides[2], count, x);
                gather(point + strides[3], strides[2], count, y);
                locate(x, y, count, height, width, reflect, at, right, down);
                for (long channel = sample * channels; channel < (sample + 1) * channels; channel++) {
                    /* Neighbours in a row are fetched as one: this loop alone is not made of vectors. */
                    float upper[2 * TILE], lower[2 * TILE], value[TILE];
                    if (bytes_in) {
                        const uint8_t *from = bytes_in + channel * plane;
                        uint8_t above[2 * TILE], under[2 * TILE];
                        for (int i = 0; i < count; i++) {
                            memcpy(above + 2 * i, from + at[i], 2);
                            memcpy(under + 2 * i, from + at[i] + below, 2);
                        }
                        for (int i = 0; i < 2 * count; i++) upper[i] = above[i];
                        for (int i = 0; i < 2 * count; i++) lower[i] = under[i];
                    } else {
                        const float *from = floats_in + channel * plane;
                        for (int i = 0; i < count; i++) {
                            memcpy(upper + 2 * i, from + at[i], 2 * sizeof(float));
                            memcpy(lower + 2 * i, from + at[i] + below, 2 * sizeof(float));
                        }
                    }
                    for (int i = 0; i < count; i++) {
                        const float a = upper[2 * i] + down[i] * (lower[2 * i] - upper[2 * i]);
                        const float b = upper[2 * i + 1] + down[i] * (lower[2 * i + 1] - upper[2 * i + 1]);
                        value[i] = a + right[i] * (b - a);
                    }
                    const long to = (channel * rows + row) * columns + first;
                    if (bytes_out)
                        for (int i = 0; i < count; i++) bytes_out[to + i] = (uint8_t)(int)rintf(value[i]);
                    else
                        for (int i = 0; i < count; i++) floats_out[to + i] = value[i];
                }
            }
}

/* ------------------------------------------------------------------------------------------- moving: affine.move_* */

enum { ROTATE, SCALE, SHEAR, TRANSLATE };

/* sin and cos of pi·g to the last bit but one: a polynomial within an eighth of a turn, the rest by symmetry. */
static inline void sin_cos(float g, float *sin, float *cos) {
    const float quarters = rintf(2 * g);
    const float t = (g - 0.5f * quarters) * 3.14159265358979f, t2 = t * t;
    const float s = t * (1 + t2 * (-1.f / 6 + t2 * (1.f / 120 + t2 * (-1.f / 5040 + t2 * (1.f / 362880)))));
    const float c = 1 + t2 * (-1.f / 2 + t2 * (1.f / 24 + t2 * (-1.f / 720 + t2 * (1.f / 40320))));
    const int quarter = (int)(quarters - 4 * rintf(quarters * 0.25f)) & 3; /* small: far out, an int would overflow */
    const float s_or_c = quarter & 1 ? c : s, c_or_s = quarter & 1 ? s : c;
    *sin = quarter & 2 ? -s_or_c : s_or_c;
    *cos = (quarter + 1) & 2 ? -c_or_s : c_or_s;
}

/* Moves points x, y [n, rows, columns], of any strides, by an atom with the fields g = factors · phi. phi has one plane
   for each sample, `one` of them set, or two; `planes` gets x and y, and may be phi where that has two. */
void move(int atom, long n, long rows, long columns, const float *phi, const float *factors, const float *x,
          const long *x_strides, const float *y, const long *y_strides, float *planes) {
    const int fields = atom == ROTATE ? 1 : 2;
    const long plane = rows * columns;
    for (long sample = 0; sample < n; sample++)
        for (long row = 0; row < rows; row++)
            for (long first = 0; first < columns; first += TILE) {
                const int count = tile_at(first, columns);
                const float *field = phi + sample * fields * plane + row * columns + first;
                float *to = planes + sample * 2 * plane + row * columns + first;
                float g[TILE], h[TILE], a[TILE], b[TILE];
                const float fg = factors[sample * fields], fh = factors[sample * fields + fields - 1];
                gather(x + sample * x_strides[0] + row * x_strides[1] + first * x_strides[2], x_strides[2], count, a);
                gather(y + sample * y_strides[0] + row * y_strides[1] + first * y_strides[2], y_strides[2], count, b);
                for (int i = 0; i < count; i++) g[i] = field[i] * fg;
                if (fields == 2)
                    for (int i = 0; i < count; i++) h[i] = field[plane + i] * fh;
                if (atom == ROTATE)
                    for (int i = 0; i < count; i++) {
                        float sin, cos;
                        sin_cos(g[i], &sin, &cos);
                        g[i] = cos * a[i] - sin * b[i];
                        h[i] = sin * a[i] + cos * b[i];
                    }
                else if (atom == SCALE)
                    for (int i = 0; i < count; i++) g[i] = a[i] + g[i] * a[i], h[i] = b[i] + h[i] * b[i];
                else if (atom == SHEAR)
                    for (int i = 0; i < count; i++) g[i] = a[i] + g[i] * b[i], h[i] = b[i] + h[i] * a[i];
                else
                    for (int i = 0; i < count; i++) g[i] += a[i], h[i] += b[i];
                for (int i = 0; i < count; i++) to[i] = g[i];
                for (int i = 0; i < count; i++) to[plane + i] = h[i];
            }
}

/* --------------------------------------------------------------------------------------------- colour: color.shift */

/* Value less chroma times how absent the channel of this hue is. */
static inline float channel(float hue, float centre, float chroma, float value) {
    const float off = hue - centre, distance = fabsf(off - rintf(off));
    return value - clamp(6 * distance - 1, 0, 1) * chroma;
}

/* Adds fields to n images [3, pixels], of bytes if `bytes_in` is set, else of floats. The fields of hue, saturation and
   value are three pointers, null for none, each with its two strides: from image to image, from pixel to pixel. */
void shift(long n, long pixels, const float *const *fields, const long *strides, const float *floats_in,
           const uint8_t *bytes_in, float *floats_out, uint8_t *bytes_out) {
    const int toned = fields[1] || fields[2];
    const float low_s = fields[1] ? 0 : -INFINITY, high_s = fields[1] ? 1 : INFINITY; /* what is not added to */
    const float low_v = fields[2] ? 0 : -INFINITY, high_v = fields[2] ? 1 : INFINITY; /* is not clamped */
    for (long image = 0; image < n; image++)
        for (long first = 0; first < pixels; first += TILE) {
            const int count = tile_at(first, pixels);
            float rgb[3][TILE], add[3][TILE];
            for (int k = 0; k < 3; k++) {
                const long from = (3 * image + k) * pixels + first;
                if (bytes_in)
                    for (int i = 0; i < count; i++) rgb[k][i] = bytes_in[from + i] * (1 / 255.f);
                else
                    for (int i = 0; i < count; i++) rgb[k][i] = floats_in[from + i];
                if (fields[k])
                    gather(fields[k] + image * strides[2 * k] + first * strides[2 * k + 1], strides[2 * k + 1], count, add[k]);
                else
                    for (int i = 0; i < count; i++) add[k][i] = 0;
            }
            for (int i = 0; i < count; i++) {
                const float red = rgb[0][i], green = rgb[1][i], blue = rgb[2][i], sum = red + green + blue;
                float value = most(most(red, green), blue);
                float chroma = value - least(least(red, green), blue);
                const float if_red = green - blue, if_green = blue - red + 2 * chroma, if_blue = red - green + 4 * chroma;
                const float not_red = value == green ? if_green : if_blue, sixths = value == red ? if_red : not_red;
                const float hue = sixths / most(chroma, 1e-20f) * (1.f / 6) + add[0][i];
                const float saturation = clamp(chroma / most(value, 1e-20f) + add[1][i], low_s, high_s);
                value = clamp(value + add[2][i], low_v, high_v);
                value = sum == sum ? value : sum; /* a channel of NaN makes all three so, as in PyTorch */
                chroma = toned ? value * saturation : chroma;
                rgb[0][i] = channel(hue, 0, chroma, value);
                rgb[1][i] = channel(hue, 1.f / 3, chroma, value);
                rgb[2][i] = channel(hue, 2.f / 3, chroma, value);
            }
            for (int k = 0; k < 3; k++) {
                const long to = (3 * image + k) * pixels + first;
                if (bytes_out)
                    for (int i = 0; i < count; i++) bytes_out[to + i] = (uint8_t)(int)rintf(clamp(rgb[k][i] * 255, 0, 255));
                else
                    for (int i = 0; i < count; i++) floats_out[to + i] = rgb[k][i];
            }
        }
}

/* ----------------------------------------------------------------------------------------------- blur: views._blur */

static inline long mirrored(long i, long n) {
    i = i < 0 ? -i : i;
    return i < n ? i : 2 * (n - 1) - i;
}

/* n planes, convolved along both axes with weights[0 … reach] to either side; reach is less than either side and HALO. */
void blur(long n, long height, long width, const float *from, const float *weights, int reach, float *to) {
    for (long row = 0; row < n * height; row++)
        for (long first = 0; first < width; first += TILE) {
            const int count = tile_at(first, width);
            const long low = first < reach ? 0 : first - reach, end = first + count + reach < width ? first + count + reach : width;
            const float *plane = from + row / height * height * width;
            float column[TILE + 2 * HALO], sum[TILE]; /* column[i + reach] is the pixel `first + i`, blurred downwards */
            float *start = column + low - first + reach;
            const float *here = plane + row % height * width + low;
            for (int i = 0; i < end - low; i++) start[i] = weights[0] * here[i];
            for (int d = 1; d <= reach; d++) {
                const float *above = plane + mirrored(row % height - d, height) * width + low;
                const float *under = plane + mirrored(row % height + d, height) * width + low;
                for (int i = 0; i < end - low; i++) start[i] += weights[d] * (above[i] + under[i]);
            }
            for (long i = first - reach; i < 0; i++) column[i - first + reach] = column[-i - first + reach];
            for (long i = width; i < first + count + reach; i++)
                column[i - first + reach] = column[mirrored(i, width) - first + reach];
            for (int i = 0; i < count; i++) sum[i] = weights[0] * column[i + reach];
            for (int d = 1; d <= reach; d++)
                for (int i = 0; i < count; i++) sum[i] += weights[d] * (column[i + reach - d] + column[i + reach + d]);
            for (int i = 0; i < count; i++) to[row * width + first + i] = sum[i];
        }
}
