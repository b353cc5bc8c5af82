package ui

import (
	"encoding/json"
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
)

// ErrGone is the error of Config.Break if the contender has gone.
var ErrGone = errors.New("it has gone already")

// Handler returns the handler of the page:
//
//	GET  /        the page, and its style, scripts and icon
//	GET  /events  server-sent events: see message
//	GET  /metrics gauges for Prometheus; nothing else for an exporter
//	POST /deed    break or revoke, if the hub can
func (h *Hub) Handler(a Access) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", h.serveMetrics)
	if h.config.Exporter {
		return a.guard(mux)
	}

	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" { // hide the token: the browser has its cookie by now
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}

		serveFile(w, r, "index.html", http.StatusOK)
	})
	mux.HandleFunc("GET /{file}", func(w http.ResponseWriter, r *http.Request) { serveFile(w, r, r.PathValue("file"), http.StatusOK) })
	mux.HandleFunc("GET /events", h.serveEvents)
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusSeeOther) })
	if h.config.Break != nil {
		mux.HandleFunc("POST /deed", h.serveDeed)
	}
	return a.guard(mux)
}

func serveFile(w http.ResponseWriter, r *http.Request, name string, status int) {
	content, err := fs.ReadFile(page, path.Join("page", name))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.WriteHeader(status)
	w.Write(content) //nolint:errcheck // the browser can have gone
}

// serveDeed breaks or revokes. The request must have the key of this page in a header (forms of
// other sites can't send one).
func (h *Hub) serveDeed(w http.ResponseWriter, r *http.Request) {
	if !equal(r.Header.Get("Zkr-Key"), h.key) {
		http.Error(w, "the key is wrong: load the page again", http.StatusForbidden)
		return
	}

	var asked struct {
		Verb      string `json:"verb"`
		Row       string `json:"row"`
		Contender string `json:"contender"`
		Reason    string `json:"reason"`
	}

	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&asked)
	if err != nil || asked.Verb != "break" && asked.Verb != "revoke" {
		http.Error(w, "the request is malformed", http.StatusBadRequest)
		return
	}

	// A browser only sends IDs. The path and the node come from our own rows.
	d, ok := h.deed(asked.Row, asked.Contender)
	if !ok {
		http.Error(w, ErrGone.Error(), http.StatusConflict)
		return
	}

	d.Verb, d.By, d.Reason = asked.Verb, r.RemoteAddr, plain.Line(plain.Cut(asked.Reason, maxText))
	switch err := h.config.Break(r.Context(), d); {
	case errors.Is(err, ErrGone):
		http.Error(w, ErrGone.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, plain.Line(err.Error()), http.StatusBadGateway)
	default:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.timeline.add(time.Now(), h.version+1, event{Kind: d.Verb, Row: asked.Row, Path: plain.Line(d.Path), From: d.Who, Reason: d.Reason})
		h.advance()
		w.WriteHeader(http.StatusNoContent)
	}
}

// deed returns the contender that a browser means by its IDs.
func (h *Hub) deed(rowID, contenderID string) (d Deed, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rows[rowID]
	if r == nil {
		return Deed{}, false
	}

	i := slices.IndexFunc(r.Contenders, func(c contender) bool { return c.ID == contenderID })
	if i < 0 {
		return Deed{}, false
	}

	c := r.Contenders[i]
	return Deed{Path: r.path, Node: c.node, Since: c.since, Who: c.Name}, true
}
