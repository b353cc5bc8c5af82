// Observability has three workers that contend for a lock, elect a leader and share a queue. It
// serves their metrics for Prometheus. It ends a session behind the leader's back, takes the
// servers away for a while, and has an item that no worker can handle. Then it shows what the
// metrics say about that:
//
//	go run -C examples/observability .
//
// With -serve the workers go on until Ctrl-C, for a Prometheus and a Grafana of yours. Beside this
// file are dashboard.json for Grafana and alerts.yaml for Prometheus. ZooKeeper runs inside the
// program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var o options
	flag.BoolVar(&o.serve, "serve", false, "go on until the program is interrupted")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:0", "the `address` to serve metrics at; port 0 is a free one")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "observability: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	if _, err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		if errors.Is(err, context.Canceled) {
			os.Exit(130)
		}
		os.Exit(1)
	}
}
