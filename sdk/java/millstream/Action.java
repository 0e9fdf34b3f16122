package millstream;

import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.util.Arrays;

/** Write an action for Millstream in Java: a program that reads and writes frames. See README.md. */
public final class Action {
    /** The longest message. */
    public static final int LIMIT = 64 << 20;

    private static final int CHUNK = 1 << 18;
    private static final byte[] EMPTY = new byte[0];

    private final FileInputStream input = new FileInputStream(FileDescriptor.in);
    private final FileOutputStream output = new FileOutputStream(FileDescriptor.out);
    private byte[] buffer = new byte[CHUNK];
    private int begin;
    private int end;
    private final byte[] held = new byte[CHUNK];
    private int count;

    /** Return the next input, null at the end of all inputs. */
    public byte[] readMessage() throws IOException {
        if (end - begin < 4 && !fill(4)) {
            return null;
        }
        int length = (buffer[begin] & 255) << 24 | (buffer[begin + 1] & 255) << 16 | (buffer[begin + 2] & 255) << 8 | buffer[begin + 3] & 255;
        if (length < 0 || length > LIMIT) {
            fatal("an input of " + Integer.toUnsignedString(length) + " bytes is longer than the limit");
        }
        if (end - begin < 4 + length) {
            fill(4 + length);
        }
        int from = begin + 4;
        begin = from + length;
        return Arrays.copyOfRange(buffer, from, begin);
    }

    /** Write an output. In the contract "one" it is the answer to the input; in "stream" more may follow. */
    public void writeMessage(byte[] payload) throws IOException {
        if (payload.length == 0) {
            throw new IllegalArgumentException("an empty message is an acknowledgement: call ackMessage");
        }
        frame(payload);
    }

    /** Say that the input is done: without an output, or ("stream") after all of them. */
    public void ackMessage() throws IOException {
        frame(EMPTY);
    }

    /** Log an error and answer the input with no output, so that the count of answers holds. */
    public void writeError(Object error) throws IOException {
        System.err.println("error: " + error);
        ackMessage();
    }

    /** Log an error and end the program with code 1; the input is given to another one. */
    public void fatal(Object error) throws IOException {
        flush();
        System.err.println("fatal: " + error);
        System.err.flush();
        Runtime.getRuntime().halt(1);
    }

    /** Write what is held back. Reading does it whenever it has to wait; so does the end of the inputs. */
    public void flush() throws IOException {
        int size = count;
        count = 0;
        output.write(held, 0, size);
    }

    private void frame(byte[] payload) throws IOException {
        int length = payload.length;
        if (count + 4 + length > CHUNK) {
            flush();
        }
        held[count++] = (byte) (length >>> 24);
        held[count++] = (byte) (length >>> 16);
        held[count++] = (byte) (length >>> 8);
        held[count++] = (byte) length;
        if (4 + length > CHUNK) {
            flush();
            output.write(payload);
        } else {
            System.arraycopy(payload, 0, held, count, length);
            count += length;
        }
    }

    private boolean fill(int wanted) throws IOException {
        byte[] room = buffer.length < wanted ? new byte[wanted] : buffer;
        System.arraycopy(buffer, begin, room, 0, end - begin);
        end -= begin;
        begin = 0;
        buffer = room;
        while (end < wanted) {
            flush();
            int got = input.read(buffer, end, buffer.length - end);
            if (got < 0) {
                if (end > 0) {
                    fatal("the input ends within a message");
                }
                return false;
            }
            end += got;
        }
        return true;
    }
}
