// TLS shows a client and a server that authenticate each other by certificates. The server refuses
// a client without a certificate, and the client refuses a server whose certificate comes from
// another CA:
//
//	go run ./examples/tls
//
// The certificates are made in a temporary directory, and ZooKeeper runs inside the program. On
// your own servers it takes a lock with your certificate:
//
//	go run ./examples/tls -servers zk1:2281 -ca ca.pem -cert billing.pem -key billing.key
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func main() {
	var files protocol.TLSFiles
	servers := flag.String("servers", "", "`host:port,...` of an ensemble (default: a ZooKeeper inside this program)")
	flag.StringVar(&files.CA, "ca", "", "a `file` with the CA that has signed the certificates of the servers")
	flag.StringVar(&files.Certificate, "cert", "", "a `file` with your certificate")
	flag.StringVar(&files.Key, "key", "", "a `file` with its key")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *servers != "" {
		err = takeLock(ctx, os.Stdout, *servers, files, 15*time.Second)
	} else {
		err = show(ctx, os.Stdout)
	}
	if err != nil {
		log.Fatal("tls: ", err)
	}
}

// takeLock is the code that your program needs. Files are read again when they have changed, so a
// certificate can be renewed while the program runs. Connect has a deadline, so that a wrong
// certificate shows.
func takeLock(ctx context.Context, out io.Writer, servers string, files protocol.TLSFiles, limit time.Duration) error {
	connecting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	client, err := protocol.Connect(connecting, servers, protocol.WithTLSFiles(files), protocol.WithLogger(slog.Default()))
	if err != nil {
		return err
	}
	defer client.Close()
	return lock.New(client, "/locks/report").Do(ctx, func(ctx context.Context, l *lock.Lease) error {
		fmt.Fprintln(out, "The client takes a lock, with token", l.Token())
		return nil
	})
}

func show(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "tls")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	a := &authority{dir: dir}
	ours, others := a.issue("ours", nil), a.issue("others", nil)
	serverFiles, billing := a.issue("localhost", ours), a.issue("billing", ours)
	if a.err != nil {
		return a.err
	}

	certificate, err := tls.LoadX509KeyPair(serverFiles.cert, serverFiles.key)
	if err != nil {
		return err
	}

	clientCAs := x509.NewCertPool()
	clientCAs.AppendCertsFromPEM(ours.pem)
	server, err := embedded.Start(embedded.Config{TLS: &tls.Config{
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    clientCAs,
	}})
	if err != nil {
		return err
	}

	defer server.Close()

	for _, client := range []struct {
		what  string
		files protocol.TLSFiles
		limit time.Duration
	}{
		{"with a certificate", protocol.TLSFiles{CA: ours.cert, Certificate: billing.cert, Key: billing.key}, time.Minute},
		{"without a certificate", protocol.TLSFiles{CA: ours.cert}, 900 * time.Millisecond},
		{"that trusts another CA", protocol.TLSFiles{CA: others.cert, Certificate: billing.cert, Key: billing.key}, 900 * time.Millisecond},
	} {
		client.files.ServerName = "localhost" // by default, the host in the connect string
		fmt.Fprintf(out, "A client %s comes.\n", client.what)
		err := takeLock(ctx, out, server.ConnectString(), client.files, client.limit)
		if ctx.Err() != nil {
			return ctx.Err() // Ctrl-C says nothing about certificates
		} else if err != nil {
			fmt.Fprintln(out, "It is refused:", err)
		}
	}

	return nil
}
