//go:build unix

// Service is a small HTTP service with three replicas. One replica leads and writes (fenced by its
// term), and the others redirect to it. The program starts the replicas as processes. It ends the
// leader with SIGTERM (as a deployment does). The next leader stops in the middle of a write. The
// output shows which replica takes over and how soon. It also shows what happens to that write:
//
//	go run ./examples/service
//	go run ./examples/service -servers zk1:2181,zk2:2181,zk3:2181
//
// The first runs on a ZooKeeper inside the program. The second leaves nothing on the ensemble.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/examples/internal/sandbox"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func main() {
	servers := flag.String("servers", "", "`host:port,...` of an ensemble (default: a ZooKeeper inside this program)")
	replica := flag.Bool("replica", false, "be a replica; the program starts its copies with this")
	timeout := flag.Duration("timeout", 2*time.Second, "the session timeout: how soon a dead leader is succeeded")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := demo
	if *replica {
		run = serve
	}
	if err := run(ctx, os.Stdout, *servers, *timeout); err != nil {
		log.Fatal("service: ", err)
	}
}

// serve is a replica: it serves until SIGTERM and then hands the leadership to the next replica.
func serve(ctx context.Context, out io.Writer, servers string, timeout time.Duration) error {
	connecting, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	client, err := protocol.Connect(connecting, servers, protocol.WithSessionTimeout(timeout))
	if err != nil {
		return err
	}

	defer client.Close()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	e, url := election.New(client, "/service/leader"), "http://"+listener.Addr().String()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(e, url, w, r) })}
	defer server.Close()
	go server.Serve(listener)
	fmt.Fprintln(out, url)
	return e.Run(ctx, []byte(url), func(ctx context.Context, _ *election.Term) error {
		<-ctx.Done() // handle does the leader's work
		return nil
	})
}

// handle appends to the service's journal if this replica leads, and redirects to the leader
// otherwise.
func handle(e *election.Election, url string, w http.ResponseWriter, r *http.Request) {
	term, leads := e.Leading()
	if !leads {
		if leader, err := e.Leader(r.Context()); err != nil || string(leader.Value) == url {
			http.Error(w, "there is no leader", http.StatusServiceUnavailable)
		} else {
			http.Redirect(w, r, string(leader.Value)+r.URL.Path, http.StatusTemporaryRedirect)
		}
		return
	}

	if r.URL.Path == "/pause" {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(time.Second) // until that has stopped all threads
	}

	// It may be too late now, whatever Leading has said. Multi writes only if the term is still
	// held. (For stores other than ZooKeeper, see examples/fencing.)
	entry := &zk.CreateRequest{Path: "/service/entry-", Data: []byte(r.FormValue("entry")), Flags: zk.FlagSequence}
	if _, err := term.Multi(r.Context(), entry); err != nil {
		http.Error(w, "does not write: "+err.Error(), http.StatusInternalServerError)
		return
	}

	fmt.Fprintf(w, "writes %q with token %d\n", entry.Data, term.Token())
}

// demo starts three replicas, and lets happen to them what happens in production. It leaves no
// processes or nodes behind.
func demo(ctx context.Context, out io.Writer, servers string, timeout time.Duration) (err error) {
	box, err := sandbox.Open(servers, "service")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()

	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	fmt.Fprintf(out, "Three replicas, %v. Sessions expire after %v.\n", box, timeout)
	replicas, urls := make(map[string]*exec.Cmd), []string{}
	for range 3 {
		r := exec.CommandContext(ctx, os.Args[0], "-replica", "-servers", box.Servers, "-timeout", timeout.String())
		r.Stderr = os.Stderr
		lines, err := r.StdoutPipe()
		if err := errors.Join(err, r.Start()); err != nil {
			return err
		}
		defer r.Wait()
		defer cancel() // which kills it

		var url string // a replica prints it once it serves
		if _, err := fmt.Fscanln(lines, &url); err != nil {
			return err
		}
		replicas[url], urls = r, append(urls, url)
	}

	first, err := post(ctx, out, urls, "/", "hello", timeout)
	if err != nil {
		return err
	}

	fmt.Fprintf(out, "\n%s gets SIGTERM, and ends.\n", first)
	replicas[first].Process.Signal(syscall.SIGTERM)
	replicas[first].Wait()
	second, err := post(ctx, out, urls, "/", "hello again", timeout)
	if err != nil {
		return err
	}

	fmt.Fprintf(out, "\n%s stops after it has looked whether it leads, and before it writes.\n", second)
	late, answered := new(strings.Builder), make(chan struct{})
	go func() {
		defer close(answered)
		post(ctx, late, []string{second}, "/pause", "too late", 0)
	}()
	syscall.Wait4(replicas[second].Process.Pid, nil, syscall.WUNTRACED, nil) // until it has stopped
	urls = slices.DeleteFunc(urls, func(url string) bool { return url == second })
	_, err = post(ctx, out, urls, "/", "in time", timeout/4)
	replicas[second].Process.Signal(syscall.SIGCONT)
	<-answered
	fmt.Fprint(out, late)
	return err
}

// post sends an entry to replicas until the leader has answered, and returns the leader's URL. No
// attempt takes longer than limit (0 means no limit).
func post(ctx context.Context, out io.Writer, urls []string, path, entry string, limit time.Duration) (leader string, err error) {
	client, began := &http.Client{Timeout: limit}, time.Now() // which follows redirects
	for i := 0; ctx.Err() == nil; i++ {
		time.Sleep(10 * time.Millisecond)
		answer, err := client.PostForm(urls[i%len(urls)]+path, url.Values{"entry": {entry}})
		if err != nil {
			continue
		}

		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err == nil && answer.StatusCode != http.StatusServiceUnavailable {
			leader = "http://" + answer.Request.URL.Host
			fmt.Fprintf(out, "%s, after %.2f s, %s", leader, time.Since(began).Seconds(), text)
			return leader, nil
		}
	}

	return "", ctx.Err()
}
