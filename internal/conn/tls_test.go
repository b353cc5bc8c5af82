package conn

import (
	"context"
	"crypto/tls"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUsersFunctionsEndNoHandshakeBadly has a TLS configuration with a function that never returns.
func TestUsersFunctionsEndNoHandshakeBadly(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	release := make(chan struct{})
	defer close(release)

	for way, does := range map[string]func(){
		"has not answered": func() { <-release },
		"panicked":         func() { panic("foreign") },
		"ended":            runtime.Goexit,
	} {
		config := func() (*tls.Config, error) {
			verify := func(tls.ConnectionState) error { does(); return nil }
			return &tls.Config{InsecureSkipVerify: true, VerifyConnection: verify}, nil
		}
		address := srv.Listener.Addr().String()
		failed := make(chan error)
		go func() {
			defer close(failed)
			_, err := dialTLS(context.Background(), dialNet, config, "tcp", target{server: address, address: address}, 100*time.Millisecond)
			failed <- err
		}()
		select {
		case err := <-failed:
			require.Error(t, err, way)
		case <-time.After(20 * time.Second):
			t.Fatal(way)
		}
	}
}
