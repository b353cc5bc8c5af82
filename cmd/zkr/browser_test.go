package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

// browsing is how long anything that a browser does may take. To start, it takes long on a busy
// machine.
const browsing = 3 * time.Minute

// A tab is a page in a headless Chromium.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// findChromium returns the path of a Chromium. Without one, or with -short, the test is skipped, or
// fails if ZKRECIPES_REQUIRE_REAL=1, as with real servers.
func findChromium(t *testing.T) string {
	t.Helper()
	reason := "no Chromium is installed: looked for chromium, chromium-browser and google-chrome"
	if testing.Short() || os.Getenv("ZKRECIPES_REAL") == "0" {
		reason = "-short or ZKRECIPES_REAL=0 leaves Chromium out"
	} else {
		for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
			if path, err := exec.LookPath(name); err == nil {
				return path
			}
		}
	}
	if os.Getenv("ZKRECIPES_REQUIRE_REAL") == "1" {
		t.Fatalf("ZKRECIPES_REQUIRE_REAL=1, but %s", reason)
	}
	t.Skip(reason)
	return ""
}

// openTab opens a page in a browser of its own.
func openTab(t *testing.T, url string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(findChromium(t)))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which root cannot have
	}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		require.NoError(t, chromedp.Cancel(ctx))
		closeTab()
	})
	require.NoError(t, chromedp.Do(ctx))
	p := &tab{t, ctx}
	p.visit(url)
	return p
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, browsing)
	defer cancel()
	require.NoError(p.t, chromedp.Do(ctx, actions...))
}

func (p *tab) visit(url string) { p.t.Helper(); p.do(chromedp.Navigate(url)) }

// size makes the page as large as a screen.
func (p *tab) size(width, height int64, phone bool) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: phone,
	})
	require.NoError(p.t, err)
}

// press presses a key.
func (p *tab) press(key string) { p.t.Helper(); p.do(chromedp.KeyEvent(key)) }

// shortcut presses a key that types nothing, as the page takes it.
func (p *tab) shortcut(key string) {
	p.t.Helper()
	for _, event := range []input.DispatchKeyEventParams{
		{Type: input.DispatchKeyEventTypeKeyDown, Key: key, Text: key}, {Type: input.DispatchKeyEventTypeKeyUp, Key: key},
	} {
		suite.Got(chromedp.Call(p.ctx, input.DispatchKeyEvent, event))(p.t)
	}
}

// eval returns the value of an expression.
func eval[T any](p *tab, expression string, args ...any) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, browsing)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](fmt.Sprintf(expression, args...)))
	require.NoError(p.t, err, expression)
	return v
}

// await waits until an expression is true.
func (p *tab) await(expression string, args ...any) {
	p.t.Helper()
	condition := fmt.Sprintf(expression, args...)
	for deadline := time.Now().Add(browsing); ; time.Sleep(10 * time.Millisecond) {
		run, cancel := context.WithTimeout(p.ctx, browsing)
		met, err := chromedp.Run(run, chromedp.Evaluate[bool]("Boolean("+condition+")")) // fails while a page is loaded
		cancel()
		if met && err == nil {
			return
		}
		require.True(p.t, time.Now().Before(deadline), "%s: %v", condition, err)
	}
}

// live waits until the page shows what there is.
func (p *tab) live() { p.t.Helper(); p.await(`document.body.dataset.state === "live"`) }

// row returns an expression for the row of a path.
func row(path string) string {
	quoted, _ := json.Marshal(path) //nolint:errchkjson // it is a string
	return fmt.Sprintf(`document.querySelector("article[data-path=" + CSS.escape(%s) + "]")`, quoted)
}

// page starts zkr ui, and returns the address of its page.
func page(t *testing.T, servers string, args ...string) string {
	t.Helper()
	ui := beginIn(t, t.Context(), servers, append([]string{"ui", "--listen", "127.0.0.1:0"}, args...)...)
	t.Cleanup(func() { require.Zero(t, ui.stop()) })
	ui.output.await(t, `http://\S+\n`)
	return regexp.MustCompile(`http://\S+`).FindString(ui.output.String())
}

// linkTo returns a link to a page, and the address at which a browser reaches the page over it.
func linkTo(t *testing.T, page string) (l *pageLink, address string) {
	t.Helper()
	target := suite.Got(url.Parse(page))(t)
	server := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(target))
	l = &pageLink{Listener: server.Listener}
	l.silence()
	server.Listener = l
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return l, server.URL
}

// A pageLink listens for browsers, and can let their connections die without a word.
type pageLink struct {
	net.Listener
	quiet atomic.Pointer[atomic.Bool] // of the connections since the last silence
}

func (l *pageLink) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return pageConn{conn, l.quiet.Load()}, err
}

// silence makes the present connections carry nothing any more. Later ones do.
func (l *pageLink) silence() {
	if before := l.quiet.Swap(new(atomic.Bool)); before != nil {
		before.Store(true)
	}
}

type pageConn struct {
	net.Conn
	quiet *atomic.Bool
}

func (c pageConn) Write(b []byte) (int, error) {
	if c.quiet.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}
