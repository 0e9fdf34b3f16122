/* Write an action for Millstream in C: a program that reads and writes frames. See README.md.
   One file, no dependencies: include it in one source file. */
#ifndef MILLSTREAM_ACTION_H
#define MILLSTREAM_ACTION_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS_LIMIT (64u << 20)
#define MS_CHUNK (1u << 18)

static struct {
    unsigned char *in, out[MS_CHUNK];
    size_t begin, end, room, held;
} ms_;

static void ms_fatal(const char *error);

static void ms_put_(const unsigned char *data, size_t size) {
    while (size > 0) {
        ssize_t done = write(1, data, size);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) _exit(1);
        data += done;
        size -= (size_t)done;
    }
}

/* Write what is held back. Reading does it whenever it has to wait; so does the end of the inputs. */
static void ms_flush(void) {
    size_t held = ms_.held;
    ms_.held = 0;
    ms_put_(ms_.out, held);
}

/* Make `wanted` bytes available; 0 at the end, if it does not lie within a message. */
static int ms_fill_(size_t wanted) {
    if (ms_.begin > 0) {
        memmove(ms_.in, ms_.in + ms_.begin, ms_.end - ms_.begin);
        ms_.end -= ms_.begin;
        ms_.begin = 0;
    }
    if (ms_.room < wanted || ms_.room == 0) {
        size_t room = wanted > MS_CHUNK ? wanted : MS_CHUNK;
        unsigned char *larger = realloc(ms_.in, room);
        if (!larger) ms_fatal("no memory for an input");
        ms_.in = larger;
        ms_.room = room;
    }
    while (ms_.end < wanted) {
        ms_flush();
        ssize_t got = read(0, ms_.in + ms_.end, ms_.room - ms_.end);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) ms_fatal("the input cannot be read");
        if (got == 0) {
            if (ms_.end > 0) ms_fatal("the input ends within a message");
            return 0;
        }
        ms_.end += (size_t)got;
    }
    return 1;
}

/* Read the next input: 1, and `data` points to it until the next call; 0 at the end of all inputs. */
static int ms_read_message(const unsigned char **data, size_t *size) {
    if (ms_.end - ms_.begin < 4 && !ms_fill_(4)) return 0;
    const unsigned char *head = ms_.in + ms_.begin;
    uint32_t length = (uint32_t)head[0] << 24 | (uint32_t)head[1] << 16 | (uint32_t)head[2] << 8 | head[3];
    if (length > MS_LIMIT) ms_fatal("an input is longer than the limit");
    if (ms_.end - ms_.begin < 4 + (size_t)length) ms_fill_(4 + (size_t)length);
    *data = ms_.in + ms_.begin + 4;
    *size = length;
    ms_.begin += 4 + (size_t)length;
    return 1;
}

static void ms_frame_(const void *data, size_t size) {
    unsigned char head[4] = {(unsigned char)(size >> 24), (unsigned char)(size >> 16), (unsigned char)(size >> 8), (unsigned char)size};
    if (ms_.held + 4 + size > MS_CHUNK) ms_flush();
    if (4 + size > MS_CHUNK) {
        ms_put_(head, 4);
        ms_put_(data, size);
        return;
    }
    memcpy(ms_.out + ms_.held, head, 4);
    if (size) memcpy(ms_.out + ms_.held + 4, data, size);
    ms_.held += 4 + size;
}

/* Write an output. In the contract "one" it is the answer to the input; in "stream" more may follow. */
static inline void ms_write_message(const void *data, size_t size) {
    if (size == 0) ms_fatal("an empty message is an acknowledgement: call ms_ack_message");
    ms_frame_(data, size);
}

/* Say that the input is done: without an output, or ("stream") after all of them. */
static inline void ms_ack_message(void) { ms_frame_(NULL, 0); }

/* Log an error and answer the input with no output, so that the count of answers holds. */
static inline void ms_write_error(const char *error) {
    fprintf(stderr, "error: %s\n", error);
    ms_ack_message();
}

/* Log an error and end the program with code 1; the input is given to another one. */
static void ms_fatal(const char *error) {
    ms_flush();
    fprintf(stderr, "fatal: %s\n", error);
    _exit(1);
}

#endif
