// grpc-go, unmodified, with its defaults: the cases of test_grpc_clients.py, each told as a line of JSON.
//
//	go run client.go TARGET [tls]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// texts is a codec of strings, in the place of protobuf's.
type texts struct{}

func (texts) Marshal(value interface{}) ([]byte, error) { return []byte(*value.(*string)), nil }
func (texts) Unmarshal(data []byte, value interface{}) error {
	*value.(*string) = string(data)
	return nil
}
func (texts) Name() string   { return "proto" }
func (texts) String() string { return "proto" }

var connection *grpc.ClientConn

func with(name, fail string, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	return metadata.AppendToOutgoingContext(ctx, "key", name, "fail", fail), cancel
}

func tell(name string, err error, reply string) {
	found := map[string]interface{}{"case": name, "code": int(status.Code(err)), "reply": nil}
	if err == nil {
		found["reply"] = reply
	}
	_ = json.NewEncoder(os.Stdout).Encode(found)
}

func unary(name, method, fail string, most time.Duration, began func(context.CancelFunc)) {
	ctx, cancel := with(name, fail, most)
	defer cancel()
	if began != nil {
		go began(cancel)
	}
	request, reply := "hello", ""
	err := connection.Invoke(ctx, "/acme.Echo/"+method, &request, &reply)
	tell(name, err, reply)
}

func stream(name, fail string) {
	ctx, cancel := with(name, fail, 20*time.Second)
	defer cancel()
	call, err := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/acme.Echo/count")
	replies, request := []string{}, "4 0"
	if err == nil {
		err = call.SendMsg(&request)
	}
	if err == nil {
		err = call.CloseSend()
	}
	for err == nil {
		reply := ""
		if err = call.RecvMsg(&reply); err == nil {
			replies = append(replies, reply)
		}
	}
	if err == io.EOF {
		err = nil
	}
	tell(name, err, strings.Join(replies, ","))
}

func main() {
	var err error
	secure := grpc.WithInsecure()
	if len(os.Args) > 2 && os.Args[2] == "tls" {
		secure = grpc.WithTransportCredentials(credentials.NewTLS(nil))
	}
	connection, err = grpc.Dial(os.Args[1], secure, grpc.WithDefaultCallOptions(grpc.ForceCodec(texts{})))
	if err != nil {
		panic(err)
	}
	unary("unary", "echo", "2", 20*time.Second, nil)
	stream("stream", "1")
	unary("given up", "echo", "99", 20*time.Second, nil)
	unary("deadline", "wait", "0", 500*time.Millisecond, nil)
	unary("cancelled", "wait", "0", 20*time.Second, func(cancel context.CancelFunc) {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		cancel()
	})
}
