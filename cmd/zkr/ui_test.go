package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/ui"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestPageShowsWhatTheServerHas(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		root := s.Root(t)
		furnish(t, s, root)
		p := openTab(t, page(t, s.ConnectString(), root))
		p.live()

		look := suite.Got(survey.Look(t.Context(), client(t, s), root, survey.Limits{}))(t)
		var want []string
		for place := range look.All() {
			if place.Recipe != survey.Directory {
				want = append(want, place.Path+" "+string(place.Recipe))
			}
		}
		assert.Equal(t, want, eval[[]string](p, `[...document.querySelectorAll("article")].map(a => a.dataset.path + " " + a.dataset.recipe)`))
		assert.Equal(t, root, eval[string](p, `document.getElementById("root").textContent`))

		for path, text := range map[string]string{
			"/lock": "a.example:7", "/permits": "1 of 3", "/queue": "1", "/group": "host-4", "/set": "a barrier that is set, or nothing",
		} {
			assert.Contains(t, eval[string](p, `%s.querySelector(".state").textContent`, row(root+path)), text)
		}

		// An opened row has all contenders, and what is odd about them.
		eval[any](p, `%s.querySelector(".head").click()`, row(root+"/lock"))
		opened := eval[string](p, `%s.querySelector(".body").innerText`, row(root+"/lock"))
		for _, c := range look.Below[slices.IndexFunc(look.Below, func(p *survey.Place) bool { return p.Recipe == survey.Lock })].Contenders {
			assert.Contains(t, opened, c.Node)
		}
		assert.Contains(t, opened, "orphan")
		assert.Contains(t, opened, `\x1b[2J`)
		assert.Contains(t, opened, `\u202eodd`)

		// Changes come without a reload.
		suite.Got(queue.New(client(t, s), root+"/queue").Offer(t.Context(), []byte("y")))(t)
		p.await(`%s.querySelector(".state .big").textContent === "2"`, row(root+"/queue"))
	})
}

func TestPageShowsAHandOver(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/lock"
		p := openTab(t, page(t, s.ConnectString(), path))
		named := func(host string) *lock.Mutex {
			return lock.New(client(t, s), path, lock.WithData(fmt.Appendf(nil, `{"host":%q}`, host)))
		}
		first := suite.Must(t, named("first.example").Lock)
		second := suite.Later(func() *lock.Lease { l, _ := named("second.example").Lock(t.Context()); return l })

		who := row(path) + `?.querySelector(".state .who").textContent`
		p.await(`%s === "first.example"`, who)
		p.await(`%s.querySelector(".waiting")?.textContent === "1 waits"`, row(path))
		require.NoError(t, first.Unlock(t.Context()))
		p.await(`%s === "second.example"`, who)
		p.await(`document.querySelector("#timeline [data-kind='handed over']")?.innerText.includes("first.example → second.example")`)

		// The contender has had to wait, so its release would be announced. Its end without a
		// release is a loss.
		l := suite.Wait(t, second)
		require.NoError(t, lock.New(client(t, s), path).Break(t.Context(), l.Node()))
		p.await(`document.querySelector("#timeline [data-kind=ended]")?.innerText.includes("second.example")`)
	})
}

// plant creates paths with a holder each, which stay until the test ends.
func plant(t *testing.T, s *recipestest.Server, root string, n int) {
	t.Helper()
	session := suite.Session(t, client(t, s))
	suite.Ensure(t, session, root)
	for first := 0; first < n; first += 100 {
		var ops []any
		for i := first; i < min(first+100, n); i++ {
			path := session.Path(fmt.Sprintf("%s/%04d", root, i))
			ops = append(ops,
				&zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)},
				&zk.CreateRequest{Path: path + "/" + session.NewOwner().String() + "-lock-", Data: fmt.Appendf(nil, `{"host":"h%d"}`, i),
					Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral | zk.FlagSequence})
		}
		suite.Got(session.Multi(t.Context(), ops...))(t)
	}
}

func TestPageTouchesOnlyWhatHasChanged(t *testing.T) {
	s := recipestest.Start(t)
	root := s.Root(t)
	plant(t, s, root, 1000)
	p := openTab(t, page(t, s.ConnectString(), root))
	p.live()
	require.Equal(t, 1000, eval[int](p, `document.querySelectorAll("article").length`))

	// Ages and the cost in the footer change by themselves.
	eval[any](p, `(window.touched = [], new MutationObserver(all => {
		for (const m of all) {
			const e = m.target.nodeType === 1 ? m.target : m.target.parentElement;
			if (e.closest("#rows") && !e.closest("time")) touched.push(e.closest("article")?.dataset.path ?? "rows");
		}
	}).observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true}))`)

	// A contender comes and another goes, in one of a thousand rows.
	changed := fmt.Sprintf("%s/%04d", root, 500)
	ctx := suite.Within(t, browsing)
	waiter := suite.Later(func() error { _, err := lock.New(client(t, s), changed).Lock(ctx); return err })
	p.await(`%s.querySelector(".waiting")`, row(changed))
	all := suite.Must(t, lock.New(client(t, s), changed).Contenders)
	require.NoError(t, lock.New(client(t, s), changed).Break(t.Context(), all[0].Node))
	require.NoError(t, suite.Wait(t, waiter))
	p.await(`!%s.querySelector(".waiting")`, row(changed))

	touched := eval[[]string](p, `touched`)
	assert.Empty(t, slices.DeleteFunc(slices.Clone(touched), func(path string) bool { return path == changed }))
	assert.LessOrEqual(t, len(touched), 20, "a few changes of one row")

	// New rows come in between, and gone ones go.
	eval[any](p, `touched.length = 0`)
	suite.Must(t, lock.New(client(t, s), root+"/0500a").Lock)
	p.await(`%s?.previousElementSibling === %s`, row(root+"/0500a"), row(changed))
	assert.NotContains(t, eval[[]string](p, `touched`), root+"/0501")
}

func TestPageSaysThatNoServerAnswers(t *testing.T) {
	server := suite.Got(embedded.Start(embedded.Config{}))(t)
	address := server.ConnectString()
	t.Cleanup(func() { server.Close() })
	p := openTab(t, page(t, address))
	p.live()
	assert.True(t, eval[bool](p, `document.getElementById("banner").hidden`))

	// The server is gone: the page says since when, and keeps what it knew.
	require.NoError(t, server.Close())
	p.await(`document.body.dataset.state === "stale"`)
	assert.Regexp(t, `^No ZooKeeper server answers since \d\d:\d\d:\d\d \(\d+s\)\. What is shown is what was known then\.$`,
		eval[string](p, `document.getElementById("banner").textContent`))
	assert.Equal(t, "stale", eval[string](p, `document.getElementById("status").textContent.trim()`))
	p.await(`document.querySelector("#timeline [data-kind=unreachable]")`)

	// A browser that comes now is told, too.
	p.do(chromedp.Reload())
	p.await(`document.body.dataset.state === "stale"`)

	// The server is back, and so is the page.
	again := suite.Got(embedded.Start(embedded.Config{Address: address}))(t)
	t.Cleanup(func() { again.Close() })
	p.live()
	assert.True(t, eval[bool](p, `document.getElementById("banner").hidden`))
}

// A connection that has died without a word, such as that of a laptop that has slept, is replaced.
func TestPageLeavesASilentConnection(t *testing.T) {
	s := recipestest.Start(t)
	root := s.Root(t)
	link, address := linkTo(t, page(t, s.ConnectString(), root))
	p := openTab(t, address)
	p.live()

	// The browser sees no end of its connection, only silence.
	link.silence()
	suite.Must(t, lock.New(client(t, s), root+"/lock").Lock)
	p.await(`%s`, row(root+"/lock"))
}

// The page names the ensemble. A link opens a row. Lines with waiters come first if asked for. A
// tab that is out of sight has no connection.
func TestPageOrdersLinksAndLetsGo(t *testing.T) {
	s := recipestest.Start(t)
	root := s.Root(t)
	plant(t, s, root, 3)
	busy := root + "/0002"
	ctx, cancel := context.WithCancel(t.Context())
	c := client(t, s)
	waiter := suite.Later(func() error { _, err := lock.New(c, busy).Lock(ctx); return err })
	p := openTab(t, page(t, s.ConnectString(), root)+"#"+url.PathEscape(busy))
	p.live()
	p.await(`%[1]s.querySelector(".waiting") && !%[1]s.querySelector(".body").hidden`, row(busy))
	assert.Contains(t, eval[string](p, `document.getElementById("ensemble").textContent`), s.ConnectString())
	assert.Contains(t, eval[string](p, `document.title`), s.ConnectString())
	for _, order := range []struct{ by, first string }{{"waiting", busy}, {"path", root + "/0000"}, {"stuck", busy}} {
		eval[any](p, `(document.getElementById("order").value = %q, document.getElementById("order").dispatchEvent(new Event("change")))`, order.by)
		p.await(`document.querySelector("article").dataset.path === %q`, order.first)
	}

	// A page that is out of sight ends its stream, and begins again in sight.
	const seen = `(window.unseen = %v, Object.defineProperty(document, "hidden", {get: () => unseen, configurable: true}),
		document.dispatchEvent(new Event("visibilitychange")))`
	eval[any](p, `void (EventSource.prototype.end = EventSource.prototype.close)`)
	eval[any](p, `void (EventSource.prototype.close = function() { window.ended = true; this.end() })`)
	eval[any](p, seen, true)
	p.await(`window.ended`)
	cancel()
	require.Error(t, suite.Wait(t, waiter))
	eval[any](p, seen, false)
	p.await(`!%s.querySelector(".waiting")`, row(busy))
}

func TestPageShowsNamesAsText(t *testing.T) {
	s := recipestest.Start(t)
	root, c := s.Root(t), client(t, s)
	const evil = `<img src=x onerror="window.broken=1">`
	name := evil + "\u202e"
	session := suite.Session(t, c)
	path := session.Path(root + "/" + name)
	suite.Ensure(t, session, root)
	suite.Got(session.Conn().Create(path, nil, 0, zk.WorldACL(zk.PermAll)))(t)
	data, err := json.Marshal(map[string]any{"host": evil, "program": "<script>window.broken=1</script>\x1b[2J\x7f\u0085", "more": "\u2028"})
	require.NoError(t, err)
	_, err = session.Conn().Create(path+"/"+session.NewOwner().String()+"-lock-", data, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	suite.Got(session.Conn().Create(path+"/"+evil, nil, 0, zk.WorldACL(zk.PermAll)))(t)

	p := openTab(t, page(t, s.ConnectString(), root))
	p.live()
	// All of it must show as text, and run nothing.
	eval[any](p, `document.querySelector("article .head").click()`)
	text := eval[string](p, `document.querySelector("article").innerText`)
	assert.Contains(t, text, evil+`\u202e`)
	assert.Contains(t, text, "<script>window.broken=1</script>"+`\x1b[2J\x7f\u0085`)
	for _, raw := range []string{"\x7f", "\u202e", "\u0085", "\x1b", "\u2028"} {
		assert.NotContains(t, eval[string](p, `document.documentElement.outerHTML`), raw)
	}
	assert.Equal(t, 1, eval[int](p, `document.querySelectorAll("img").length`), "the page's own")
	assert.Equal(t, 2, eval[int](p, `document.querySelectorAll("script").length`), "the page's own")
	assert.True(t, eval[bool](p, `window.broken === undefined`))

	// Even a script of the page could not make an element out of text.
	assert.True(t, eval[bool](p, `(() => { try { document.body.innerHTML = "x"; return false } catch { return true } })()`))
}

func TestPageCanBeUsedByKeyboard(t *testing.T) {
	s := recipestest.Start(t)
	root := s.Root(t)
	plant(t, s, root, 30)
	p := openTab(t, page(t, s.ConnectString(), root))
	p.live()
	const focused = `document.activeElement.closest("article")?.dataset.path`

	// Rows can be reached, opened and closed.
	p.press(kb.ArrowDown)
	p.await(`%s === %q`, focused, root+"/0000")
	p.press("j")
	p.press(kb.ArrowDown)
	p.press("k")
	p.await(`%s === %q`, focused, root+"/0001")
	p.press(kb.End)
	p.await(`%s === %q`, focused, root+"/0029")
	p.press(kb.Home)
	p.await(`%s === %q`, focused, root+"/0000")
	assert.Equal(t, 1, eval[int](p, `document.querySelectorAll("article .head[tabindex='0']").length`), "one stop for the tab key")

	p.press(kb.Enter)
	p.await(`!%s.querySelector(".body").hidden`, row(root+"/0000"))
	assert.Equal(t, "true", eval[string](p, `document.activeElement.getAttribute("aria-expanded")`))
	p.press(kb.Escape)
	p.await(`%s.querySelector(".body").hidden`, row(root+"/0000"))

	// The filter can be used and left.
	p.shortcut("/")
	p.press("h17")
	p.await(`[...document.querySelectorAll("article:not([hidden])")].map(a => a.dataset.path).join() === %q`, root+"/0017")
	p.press(kb.ArrowDown)
	p.await(`%s === %q`, focused, root+"/0017")
	p.shortcut("/")
	p.press(kb.Escape)
	p.await(`document.querySelectorAll("article:not([hidden])").length === 30`)
	p.press("?")
	p.await(`document.getElementById("help").open`)
	p.press(kb.Escape)
	p.await(`!document.getElementById("help").open`)

	// The choice of colours outlasts a reload.
	const ground = `getComputedStyle(document.body).backgroundColor`
	before := eval[string](p, ground)
	p.press("d")
	p.await(`%s !== %q`, ground, before)
	after := eval[string](p, ground)
	p.do(chromedp.Reload())
	p.await(`%s === %q`, ground, after)
}

func TestPageBreaksOnlyIfAllowed(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/lock"
		suite.Keep(t, client(t, s), path)
		lease := suite.Must(t, lock.New(client(t, s), path).Lock)

		// Without --allow-break there is no button, and no request is accepted.
		p := openTab(t, page(t, s.ConnectString(), path))
		p.live()
		eval[any](p, `%s.querySelector(".head").click()`, row(path))
		assert.Zero(t, eval[int](p, `%s.querySelectorAll(".body button").length`, row(path)))
		assert.Equal(t, 405, eval[int](p, `(() => { const r = new XMLHttpRequest(); r.open("POST", "deed", false); r.send(); return r.status })()`))

		p.visit(page(t, s.ConnectString(), path, "--allow-break"))
		p.live()
		eval[any](p, `%s.querySelector(".head").click()`, row(path))
		press := func(button string) {
			p.await(`[...document.querySelectorAll("button")].some(b => b.offsetParent && b.textContent === %q)`, button)
			eval[any](p, `[...document.querySelectorAll("button")].find(b => b.offsetParent && b.textContent === %q).click()`, button)
		}
		// A question that isn't confirmed changes nothing.
		press("break…")
		p.await(`document.getElementById("confirm").open && document.getElementById("confirm").innerText.includes(%q)`, lease.Node())
		press("Leave it")
		p.await(`!document.getElementById("confirm").open`)
		require.NoError(t, lease.Err())

		// A revocation leaves the lock held.
		revoked := lease.Revoked()
		press("revoke…")
		press("revoke")
		suite.Wait(t, revoked)
		p.await(`!document.getElementById("confirm").open`)
		require.NoError(t, lease.Err())

		// A break has a reason, which the timeline shows.
		press("break…")
		p.await(`document.getElementById("confirm").open`)
		eval[any](p, `document.getElementById("confirm-reason").value = "host is dead"`)
		press("break")
		suite.Wait(t, lease.Done())
		p.await(`document.getElementById("timeline").innerText.includes("host is dead")`)
		p.await(`%s.dataset.recipe === "empty"`, row(path))
	})
}

func TestPageSparesTheNextMemberOfAName(t *testing.T) {
	s := recipestest.Start(t)
	path, c := s.Root(t)+"/group", client(t, s)
	suite.Got(group.New(c, path).Join(t.Context(), "me", nil))(t)
	look := suite.Got(survey.Look(t.Context(), c, path, survey.Limits{}))(t)
	// The page shows an earlier member of that name, so the present member must stay.
	d := ui.Deed{Verb: "break", Path: path, Node: "me", Since: look.Contenders[0].Since.Add(-time.Second)}
	require.ErrorIs(t, breakFor(t.Context(), c, d), ui.ErrGone)
	d.Node = "other"
	require.ErrorIs(t, breakFor(t.Context(), c, d), ui.ErrGone)
	d.Node, d.Since, d.Verb = "me", look.Contenders[0].Since, "revoke"
	require.ErrorContains(t, breakFor(t.Context(), c, d), "only a lock can be revoked")
	peers := suite.Must(t, group.New(c, path).Members)
	require.Len(t, peers, 1)
}

func TestPageFitsAPhone(t *testing.T) {
	s := recipestest.Start(t)
	root := s.Root(t)
	furnish(t, s, root)
	long := root + "/" + strings.Repeat("averylongnamewithoutabreak", 8)
	_, err := lock.New(client(t, s), long, lock.WithData(fmt.Appendf(nil, `{"host":%q,"pid":1,"program":%q}`,
		strings.Repeat("host", 40), strings.Repeat("program", 40)))).Lock(t.Context())
	require.NoError(t, err)

	p := openTab(t, page(t, s.ConnectString(), root, "--allow-break"))
	for _, width := range []int64{320, 390, 768, 1200} {
		p.size(width, 800, width < 700)
		p.do(chromedp.Reload())
		p.live()
		eval[any](p, `document.querySelectorAll("article .head").forEach(h => h.click())`)
		p.await(`innerWidth === %d`, width)
		assert.LessOrEqual(t, eval[int](p, `document.documentElement.scrollWidth`), int(width))
		for _, part := range []string{"#rows", "header", "aside"} {
			assert.LessOrEqual(t, eval[float64](p, `document.querySelector(%q).getBoundingClientRect().right`, part), float64(width), part)
		}
		assert.Empty(t, eval[[]string](p, `[...document.querySelectorAll("article button, article .who, article dd")]
			.filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.className)`))
	}
}

func TestPageAsksForTheTokenOnce(t *testing.T) {
	s := recipestest.Start(t)
	root := s.Root(t)
	furnish(t, s, root)
	const token = "a token of a few words"
	p := openTab(t, page(t, s.ConnectString(), root, "--token", token))
	p.await(`document.querySelector("input[type=password]") === document.activeElement`)
	assert.NotContains(t, eval[string](p, `document.body.innerText`), root)
	// A wrong token leads back to the question.
	p.press("wrong" + kb.Enter)
	p.await(`location.pathname === "/login" && document.readyState === "complete" &&
		document.querySelector("input[type=password]") === document.activeElement`)
	p.press(token + kb.Enter)
	p.await(`document.body.dataset.state === "live" && %s`, row(root+"/lock"))
	p.do(chromedp.Reload())
	p.live()
	assert.NotContains(t, eval[string](p, `document.cookie`), "zkr", "a script cannot read it")
}

func TestWhatActsOrHasCredentialsNeedsAToken(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/lock"
	lease := suite.Must(t, lock.New(client(t, s), path).Lock)
	status := func(url string) int {
		answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(httptest.NewRequest(http.MethodGet, url, nil))
		require.NoError(t, err)
		answer.Body.Close()
		return answer.StatusCode
	}
	for name, args := range map[string][]string{
		"acts": {"--allow-break"}, "credential": {"--auth", "digest:me:secret"}, "exporter": {"--auth", "digest:me:secret"},
	} {
		verb := "ui"
		if name == "exporter" {
			verb = "exporter"
		}
		out := beginIn(t, t.Context(), s.ConnectString(), append([]string{verb, path, "--listen", "127.0.0.1:0"}, args...)...)
		out.output.await(t, `http://\S+\n`)
		address, token, made := strings.Cut(strings.TrimSpace(out.output.String()), "?token=")
		require.True(t, made, name)
		address = address[:strings.LastIndex(address, "/")]
		for _, file := range []string{"/metrics", "/events", "/app.js", "/deed"} {
			assert.Equal(t, http.StatusUnauthorized, status(address+file), "%s %s", name, file)
		}
		assert.Equal(t, http.StatusUnauthorized, status(address+"/?token=x"+token), name)
		assert.Equal(t, http.StatusSeeOther, status(address+"/?token="+token), name)
		require.Zero(t, out.stop())
	}
	require.NoError(t, lease.Err())

	// Metrics that need no credential are served to each user of this machine.
	out := beginIn(t, t.Context(), s.ConnectString(), "exporter", path, "--listen", "127.0.0.1:0")
	out.output.await(t, `http://\S+/metrics\n`)
	url := strings.TrimSpace(out.output.String())
	for body := ""; !strings.Contains(body, "zkr_oldest_holder_line_seconds{path="); {
		answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(httptest.NewRequest(http.MethodGet, url, nil))
		require.NoError(t, err)
		text := suite.Got(io.ReadAll(answer.Body))(t)
		body = string(text)
		assert.Equal(t, http.StatusNotFound, status(strings.TrimSuffix(url, "metrics")))
	}
	require.Zero(t, out.stop())
}

func TestUIWaitsForAServer(t *testing.T) {
	r := inProcess(t, "127.0.0.1:1", "", "ui", "--listen", "127.0.0.1:0", "--wait", "1ms")
	assert.Equal(t, exitUnreachable, r.status)
}
