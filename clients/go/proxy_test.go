package perdiem_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"time"
)

// proxy spoils exchanges on purpose: one fault for each request, in order, and then none.
//
// cut: half of the request arrives. lose: perdiem answers, and the connection breaks. tear: so it does within the
// answer. delay: the answer is 2.5 seconds late. Another text is an answer of the proxy itself.
type proxy struct {
	target   string
	listener net.Listener
	mutex    sync.Mutex
	faults   []string
	requests int
}

func startProxy(t *testing.T, faults ...string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	p := &proxy{target: strings.TrimPrefix(serverURL, "http://"), listener: listener, faults: faults}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) spoil(faults ...string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.faults = faults
}

func (p *proxy) nextFault() string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.requests++
	if len(p.faults) == 0 {
		return ""
	}
	fault := p.faults[0]
	p.faults = p.faults[1:]
	return fault
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	requests, answers := bufio.NewReader(client), bufio.NewReader(server)
	for {
		request, err := http.ReadRequest(requests)
		if err != nil {
			return
		}
		text, _ := httputil.DumpRequest(request, true)
		fault := p.nextFault()
		switch {
		case strings.HasPrefix(fault, "HTTP/"):
			io.WriteString(client, fault)
			return
		case fault == "cut":
			server.Write(text[:len(text)/2])
			return
		}
		server.Write(text)
		response, err := http.ReadResponse(answers, request)
		if err != nil {
			return
		}
		var answer bytes.Buffer
		response.Write(&answer)
		switch fault {
		case "lose":
			return
		case "tear":
			client.Write(answer.Bytes()[:40])
			return
		case "delay":
			time.Sleep(2500 * time.Millisecond)
		}
		client.Write(answer.Bytes())
	}
}
