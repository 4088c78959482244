package main
import ("context";"fmt";"os";"strconv";"time";"unsafe";"slices"
"github.com/gorun-spmd/gorun/comm";"github.com/gorun-spmd/gorun/runtime")
func main(){ runtime.Main(func(ctx context.Context,w *comm.Comm) error {
 n,_:=strconv.Atoi(os.Args[2]); reps,_:=strconv.Atoi(os.Args[3])
 p,err:=w.Memory().Alloc(n*4*w.Size()+64); if err!=nil {return err}
 q,err:=w.Memory().Alloc(n*4*w.Size()+64); if err!=nil {return err}
 a:=unsafe.Slice((*float32)(p),n*w.Size()); b:=unsafe.Slice((*float32)(q),n*w.Size())
 clear(a);clear(b)
 var ts []float64
 for range 5 {
 t:=time.Now()
 for range reps { var err error
  switch os.Args[1] {
  case "barrier": err=comm.Barrier(ctx,w)
  case "all_reduce": err=comm.AllReduce(ctx,w,a[:n],comm.Sum)
  case "all_gather": err=comm.AllGather(ctx,w,b,a[:n])
  case "reduce_scatter": err=comm.ReduceScatter(ctx,w,b[:n/w.Size()],a[:n],comm.Sum)
  case "all_to_all": err=comm.AllToAll(ctx,w,b[:n],a[:n])
  case "broadcast": err=comm.Broadcast(ctx,w,a[:n],0)
  }
  if err!=nil {return err}
 }
 ts=append(ts,float64(time.Since(t).Nanoseconds())/float64(reps))
 }
 slices.Sort(ts)
 if w.Rank()==0 {fmt.Printf("%s n=%d np=%d: med %.1f ns min %.1f\n",os.Args[1],n,w.Size(),ts[2],ts[0])}
 return nil
})}
