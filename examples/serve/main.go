// Command serve answers lookups in a table that embedding.Table.Export or Dynamic.Export has
// written, and takes what is exported while it runs within a second:
//
//	go run ./examples/serve users.table
//	curl 'localhost:8080/row?key=7'        [0.25,-1.5,…]
//	curl 'localhost:8080/top?key=7&k=3'    the rows with the largest inner products with it
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/gorun-spmd/gorun/serve"
)

func main() {
	live, err := serve.Open(append(os.Args, "users.table")[1])
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for range time.Tick(time.Second) {
			if changed, err := live.Reload(); err != nil || changed {
				log.Println("reload:", changed, err)
			}
		}
	}()
	answer := func(w http.ResponseWriter, r *http.Request) {
		key, err := strconv.ParseInt(r.FormValue("key"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		k, _ := strconv.Atoi(r.FormValue("k")) // 0: the row itself
		if err := live.View(func(t *serve.Table) {
			if row, ok := t.Row(key); !ok {
				http.NotFound(w, r)
			} else if k > 0 {
				_ = json.NewEncoder(w).Encode(t.TopK(row, min(k, 1000))) // an error is the client's
			} else {
				_ = json.NewEncoder(w).Encode(row)
			}
		}); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}
	http.HandleFunc("/row", answer)
	http.HandleFunc("/top", answer)
	log.Fatal(http.ListenAndServe("localhost:8080", nil))
}
