/* The programs that every SDK is tested with: echo, filter, split, slow. */
#define _POSIX_C_SOURCE 200809L
#include "millstream_action.h"

#include <time.h>

typedef void (*program)(const unsigned char *data, size_t size, long argument);

static void echo(const unsigned char *data, size_t size, long argument) {
    (void)argument;
    if (size)
        ms_write_message(data, size);
    else
        ms_ack_message();
}

static void filter(const unsigned char *data, size_t size, long mod) {
    char error[64];
    if (size == 5 && !memcmp(data, "fatal", 5)) ms_fatal("as you wish");
    if (size != 4) {
        snprintf(error, sizeof error, "%zu bytes are no number", size);
        ms_write_error(error);
        return;
    }
    uint32_t number = (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
    if (number % (uint32_t)mod)
        ms_ack_message();
    else
        ms_write_message(data, size);
}

static void split(const unsigned char *data, size_t size, long argument) {
    size_t begin = 0;
    (void)argument;
    for (size_t at = 0; at <= size; at++) {
        if (at < size && data[at] != ',') continue;
        if (at > begin) ms_write_message(data + begin, at - begin);
        begin = at + 1;
    }
    ms_ack_message();
}

static void slow(const unsigned char *data, size_t size, long milliseconds) {
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
    echo(data, size, 0);
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "echo";
    long argument = count > 2 ? atol(arguments[2]) : 1;
    program work = !strcmp(name, "filter") ? filter : !strcmp(name, "split") ? split : !strcmp(name, "slow") ? slow : echo;
    const unsigned char *data;
    size_t size;
    while (ms_read_message(&data, &size)) work(data, size, argument);
    return 0;
}
