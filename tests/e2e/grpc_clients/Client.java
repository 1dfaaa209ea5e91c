// grpc-java, unmodified, with its defaults: the cases of test_grpc_clients.py, each told as a line of JSON.
//   java -cp JARS Client.java TARGET [tls]

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

public class Client {
    static final MethodDescriptor.Marshaller<String> TEXT = new MethodDescriptor.Marshaller<>() {
        public InputStream stream(String value) {
            return new ByteArrayInputStream(value.getBytes());
        }

        public String parse(InputStream stream) {
            try {
                return new String(stream.readAllBytes());
            } catch (java.io.IOException error) {
                throw new RuntimeException(error);
            }
        }
    };
    static ManagedChannel channel;

    static void call(String name, String method, boolean streams, String request, String fail, long millis)
            throws Exception {
        Metadata metadata = new Metadata();
        metadata.put(Metadata.Key.of("key", Metadata.ASCII_STRING_MARSHALLER), name);
        metadata.put(Metadata.Key.of("fail", Metadata.ASCII_STRING_MARSHALLER), fail);
        MethodDescriptor<String, String> descriptor = MethodDescriptor.<String, String>newBuilder()
                .setType(streams ? MethodDescriptor.MethodType.SERVER_STREAMING : MethodDescriptor.MethodType.UNARY)
                .setFullMethodName("acme.Echo/" + method)
                .setRequestMarshaller(TEXT)
                .setResponseMarshaller(TEXT)
                .build();
        ClientCall<String, String> call =
                channel.newCall(descriptor, CallOptions.DEFAULT.withDeadlineAfter(millis, TimeUnit.MILLISECONDS));
        CountDownLatch over = new CountDownLatch(1);
        List<String> replies = new ArrayList<>();
        call.start(new ClientCall.Listener<>() {
            public void onMessage(String reply) {
                replies.add(reply);
            }

            public void onClose(Status status, Metadata trailers) {
                String reply = replies.isEmpty() ? "null" : "\"" + String.join(",", replies) + "\"";
                System.out.println("{\"case\": \"" + name + "\", \"code\": " + status.getCode().value()
                        + ", \"reply\": " + reply + "}");
                over.countDown();
            }
        }, metadata);
        call.request(100);
        call.sendMessage(request);
        call.halfClose();
        if (name.equals("cancelled")) {
            System.in.read();
            call.cancel("nobody wants it any more", null);
        }
        over.await();
    }

    public static void main(String[] arguments) throws Exception {
        ManagedChannelBuilder<?> builder = ManagedChannelBuilder.forTarget(arguments[0]);
        boolean secure = arguments.length > 1 && arguments[1].equals("tls");
        channel = (secure ? builder.useTransportSecurity() : builder.usePlaintext()).build();
        call("unary", "echo", false, "hello", "2", 20000);
        call("stream", "count", true, "4 0", "1", 20000);
        call("given up", "echo", false, "hello", "99", 20000);
        call("deadline", "wait", false, "hello", "0", 500);
        call("cancelled", "wait", false, "hello", "0", 20000);
        channel.shutdownNow();
        System.exit(0);
    }
}
