package millstream;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;

/** The programs that every SDK is tested with: echo, filter, split, slow. */
public final class Programs {
    private static final Action ACTION = new Action();

    public static void main(String[] arguments) throws Exception {
        int argument = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 1;
        for (byte[] payload; (payload = ACTION.readMessage()) != null; ) {
            switch (arguments[0]) {
                case "filter" -> filter(payload, argument);
                case "split" -> split(payload);
                case "slow" -> {
                    Thread.sleep(argument);
                    echo(payload);
                }
                default -> echo(payload);
            }
        }
    }

    private static void echo(byte[] payload) throws IOException {
        if (payload.length == 0) {
            ACTION.ackMessage();
        } else {
            ACTION.writeMessage(payload);
        }
    }

    private static void filter(byte[] payload, int mod) throws IOException {
        if (new String(payload, "ISO-8859-1").equals("fatal")) {
            ACTION.fatal("as you wish");
        }
        if (payload.length != 4) {
            ACTION.writeError(payload.length + " bytes are no number");
        } else if (Integer.remainderUnsigned(ByteBuffer.wrap(payload).getInt(), mod) != 0) {
            ACTION.ackMessage();
        } else {
            ACTION.writeMessage(payload);
        }
    }

    private static void split(byte[] payload) throws IOException {
        int begin = 0;
        for (int at = 0; at <= payload.length; at++) {
            if (at == payload.length || payload[at] == ',') {
                if (at > begin) {
                    ACTION.writeMessage(Arrays.copyOfRange(payload, begin, at));
                }
                begin = at + 1;
            }
        }
        ACTION.ackMessage();
    }
}
