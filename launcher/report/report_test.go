package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/internal/control"
	"github.com/gorun-spmd/gorun/internal/testenv"
)

const ms = int64(1e6)

// straggled returns the parts of a job of so many ranks. Each makes steps of 10 ms: input of 1 ms,
// an operator of 3 ms, an all-reduce. Rank slow computes 5 ms more, for which the others wait.
func straggled(ranks, slow, steps int, name string) []*control.TracePart {
	var parts []*control.TracePart
	for rank := range ranks {
		p := &control.TracePart{Rank: rank, Host: "node", Began: 1, Ended: 1 + int64(steps)*10*ms}
		input, called, site, call, world :=
			p.AddText("input"), p.AddText(name), p.AddText("main.go:7"), p.AddText("AllReduce"), p.AddText("world")
		add := func(r control.TraceRecord) {
			r.Site = site
			p.Records = append(p.Records, r)
			p.Written++
		}
		for step := range int64(steps) {
			at := 1 + step*10*ms
			p.Samples = append(p.Samples, control.TraceSample{At: at, Step: step, Value: float64(step), Kind: control.SampleStep},
				control.TraceSample{At: at, Step: step, Value: float64(rank+1) * 1e6, Kind: control.SampleMemory})
			if rank == 0 {
				p.Samples = append(p.Samples, control.TraceSample{At: at, Step: step, Value: 1 / float64(step+1), Name: called})
			}
			begins := at + 4*ms
			if rank == slow {
				begins += 5 * ms
			}
			add(control.TraceRecord{Start: at, Number: uint64(step), Peer: -1, Shape: control.TraceStep})
			add(control.TraceRecord{Start: at, End: at + ms, Peer: -1, Shape: control.TraceSpan, Name: input})
			add(control.TraceRecord{Start: at + ms, End: at + 4*ms, Peer: -1, Shape: control.TraceOperator, Name: called})
			add(control.TraceRecord{Start: begins, End: at + 10*ms, Call: uint64(step + 1), Number: uint64(step + 1), Bytes: 800, Count: 100,
				Size: int32(ranks), Peer: -1, Name: call, Comm: world, Cause: called})
		}
		parts = append(parts, p)
	}
	layout := `{"name":"w</script>","title":"[4, 8] S(0) on (tp=2)","type":"float32","bytes":128,"shape":[4,8],
		"regions":[{"offset":[0,0],"size":[2,8],"label":"0"},{"offset":[2,0],"size":[2,8],"label":"1"}]}`
	parts[0].Samples = append(parts[0].Samples,
		control.TraceSample{At: 1, Step: -1, Kind: control.SampleLayout, Name: parts[0].AddText(layout)})
	return parts
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

func TestReport(t *testing.T) {
	r := New("train", straggled(8, 5, 20, "MatMul"))
	if s := r.Slowest; s == nil || s.Rank != 5 || !near(s.Seconds, 7*20*0.005) || !near(s.Share, 1) || !near(s.Ratio, 9.0/4) {
		t.Errorf("slowest: %+v", s)
	}
	for _, one := range r.Ranks {
		compute, wait := 0.003*20, 0.005*20
		if one.Rank == 5 {
			compute, wait = 0.008*20, 0
		}
		if !near(one.Seconds, 0.2) || !near(one.Input, 0.001*20) || !near(one.Compute, compute) || !near(one.Wait, wait) ||
			!near(one.Communicate, 0.001*20) || !one.Ended || one.Memory != float64(one.Rank+1)*1e6 {
			t.Errorf("%+v", one)
		}
	}
	if c := r.Causes; len(c) != 1 || c[0].Call != "AllReduce" || c[0].Cause != "MatMul" || c[0].Calls != 160 || c[0].Bytes != 160*800 {
		t.Errorf("causes: %+v", c)
	}
	if o := r.Operators; len(o) != 2 || o[0].Name != "MatMul" || o[0].Kind != "forward" ||
		!near(o[0].Seconds, 8*20*0.003) || o[1].Kind != "span" {
		t.Errorf("operators: %+v", o)
	}
	if b := r.Traffic.Bytes; b[0][0] != 0 || b[0][7] != 20*2*800/8 || len(b) != 8 {
		t.Errorf("traffic: %v", b)
	}
	if m := r.Metrics; len(m) != 2 || m[0].Name != "MatMul" || len(m[0].Points) != 20 ||
		m[1].Name != "steps/s" || !near(m[1].Points[0][2], 100) {
		t.Errorf("metrics: %+v", m)
	}
	if len(r.Memory) != 8 || len(r.Layouts) != 1 || len(r.TimeLine.Rows) != 8 ||
		len(r.TimeLine.Rows[0].Slices) != 80 || len(r.Notes) != 0 {
		t.Errorf("%d, %d, %d, %v", len(r.Memory), len(r.Layouts), len(r.TimeLine.Rows), r.Notes)
	}
	want := "slowest: rank 5: the others waited 700 ms for it, 100% of all waiting; " +
		"it computed and took input 2.2 times as long as the median of the others"
	if s := r.Summary(); len(s) != 5 || s[1] != want {
		t.Errorf("summary %q", s)
	}
}

func TestNobodyIsSlow(t *testing.T) {
	for ranks, parts := range map[int][]*control.TracePart{1: straggled(1, -1, 3, "x"), 4: straggled(4, -1, 3, "x")} {
		if r := New("", parts); r.Slowest != nil || len(r.Ranks) != ranks {
			t.Errorf("%d ranks: %+v", ranks, r.Slowest)
		}
	}
}

// TestMessages: a receiver waits for its sender, and the bytes go from the sender to the receiver.
func TestMessages(t *testing.T) {
	parts := straggled(2, -1, 0, "x")
	for rank, p := range parts {
		p.Ended = 1 + 100*ms
		r := control.TraceRecord{Start: 1, End: 1 + 60*ms, Number: 1, Bytes: 40, Size: 2, Peer: int32(1 - rank), Shape: control.TraceRecv,
			Name: p.AddText("Recv")}
		if rank == 1 {
			r.Start, r.Shape, r.Name = 1+50*ms, control.TraceSend, p.AddText("Send")
		}
		p.Records, p.Written = []control.TraceRecord{r}, 1
	}
	r := New("", parts)
	if r.Traffic.Bytes[1][0] != 40 || r.Traffic.Bytes[0][1] != 0 || !near(r.Ranks[0].Wait, 0.05) || r.Slowest == nil || r.Slowest.Rank != 1 {
		t.Errorf("%+v, %+v", r.Traffic, r.Ranks)
	}
}

// TestHostilePage: the page has the program's names as data only, and leaves out what is too much.
func TestHostilePage(t *testing.T) {
	name := `</script><script>alert("1")</script><!--` + strings.Repeat("x", 1000)
	r := New(name, straggled(200, 5, 300, name))
	var page bytes.Buffer
	if err := r.Write(&page); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), "</script>"); n != 2 || strings.Contains(page.String(), "<!--") {
		t.Errorf("%d ends of scripts", n)
	}
	if page.Len() > 4<<20 {
		t.Errorf("the page has %d bytes", page.Len())
	}
	if n := r.TimeLine; n.Kept != maxSlices || n.Left != maxRows*300*4-maxSlices || len(r.Traffic.Names) > maxBlocks || len(r.Notes) != 3 {
		t.Errorf("%d kept, %d left, %d names, notes %q", n.Kept, n.Left, len(r.Traffic.Names), r.Notes)
	}
	text := page.String()
	_, text, _ = strings.Cut(text, `id="data">`)
	text, _, _ = strings.Cut(text, "</script>")
	if err := json.Unmarshal([]byte(text), &Report{}); err != nil {
		t.Error(err)
	}
}

func TestLive(t *testing.T) {
	l, err := Serve(":0", func() (*Report, error) { return New("train", straggled(2, 1, 3, "x")), nil })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !strings.HasPrefix(l.URL, "http://127.0.0.1:") {
		t.Errorf("it is at %s", l.URL)
	}
	base := strings.TrimSuffix(l.URL, l.token+"/")
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		l.URL: {200, "<!doctype html>"}, l.URL + "data.json": {200, `{"Title":"train"`}, base: {404, ""}, base + "data.json": {404, ""},
		base + "wrong/data.json": {404, ""}, l.URL + "other": {404, ""}, strings.TrimSuffix(l.URL, "/"): {404, ""},
	} {
		answer, err := http.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != want.status || !strings.HasPrefix(string(body), want.text) {
			t.Errorf("%s: %d %.40s, %v", path, answer.StatusCode, body, err)
		}
	}
	if _, err := Serve("nonsense", nil); err == nil {
		t.Error("an address without a port is served")
	}
}

// TestLiveInBrowser follows a running job in Chromium: the page shows what became known since it was opened, and says
// when the job has ended.
func TestLiveInBrowser(t *testing.T) {
	browser := needBrowser(t)
	const last = 4
	made := 0 // reports, each of 10 steps more
	l, err := Serve(":0", func() (*Report, error) {
		if made++; made > last {
			return nil, errors.New("no rank runs now")
		}
		return New("train", straggled(8, 5, 10*made, "MatMul")), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.mu.Lock()
	l.age = 0 // the browser's clock runs ahead
	l.mu.Unlock()
	page := shown(t, browser, l.URL, 20*time.Second)
	for _, want := range []string{"the others waited 1.4 s for it, 100 % of all waiting",
		`id="live">gorun does not answer any more: the job has ended.`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if made <= last {
		t.Errorf("the page asked %d times", made)
	}
}

// needBrowser returns the command of a Chromium.
func needBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	testenv.NeedPrograms(t, "chromium")
	return "chromium"
}

// shown returns the document that a browser shows of a page after so long by the page's clock.
func shown(t *testing.T, browser, url string, after time.Duration) string {
	t.Helper()
	cmd := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(), "--window-size=1700,1000",
		fmt.Sprint("--virtual-time-budget=", after.Milliseconds()), "--dump-dom", url)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return strings.ReplaceAll(string(out), "\u00a0", " ")
}

// TestPageInBrowser opens the page in Chromium, on a telephone and on a desk: it names the slowest rank, draws all
// sections, needs no more room than there is, cuts no table, and can be used by keyboard alone.
func TestPageInBrowser(t *testing.T) {
	browser := needBrowser(t)
	dir := t.TempDir()
	var page bytes.Buffer
	if err := New("train", straggled(8, 5, 20, "MatMul")).Write(&page); err != nil {
		t.Fatal(err)
	}
	check, err := os.ReadFile("testdata/check.js")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(page.String(), "</body>", "<script>"+string(check)+"</script></body>", 1)
	if err := os.WriteFile(filepath.Join(dir, "page.html"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{390, 1600} {
		frame := filepath.Join(dir, fmt.Sprint(width, ".html")) // Chromium's own windows are at least 500 wide
		text := fmt.Sprintf(`<!doctype html><title>nothing yet</title><script>onmessage = e => { document.title = 'found'; `+
			`document.body.append(e.data); }</script><body><iframe src="page.html" style="width:%dpx;height:900px;border:0"></iframe>`, width)
		if err := os.WriteFile(frame, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, found, _ := strings.Cut(shown(t, browser, "file://"+frame, 3*time.Second), "</iframe>")
		for _, want := range []string{
			"slowest: Rank 5 was the slowest: the others waited 700 ms for it", "layout: w&lt;/script&gt;", fmt.Sprint("width: ", width),
			"overflow: 0; sections: 9; cut tables: 0;",
			"in the order of Tab: A, A, A, A, A, A, A, svg, svg, svg, BUTTON, BUTTON, BUTTON, BUTTON, BUTTON, BUTTON, BUTTON, BUTTON, BUTTON, " +
				"CANVAS application, TD, DIV region, DIV region;",
			"without a ring: 0; without a name: 0; keep Tab: 0;",
			"curve: step 18: 0.0526; ",
			"time line: rank 0, at 0 s: input, 1 ms — main.go:7 | rank 1, at 0 s: input, 1 ms — main.go:7 | rank 0, ",
			"heat: from 0 to 1: 3.91 KiB, from 7 to 7: 0 B, one in the order of Tab;",
		} {
			if !strings.Contains(found, want) {
				t.Errorf("%d pixels: no %q in %q", width, want, found)
			}
		}
	}
}
